// Search in pages that were opened from disk: browsers start no workers there, so the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      // the answers of the script inside come here; messages to it wait until it is there
      inside.postMessage = (data) => this.answer(data);
      inside.importScripts = () => {};
      this.send = (data) => inside.dispatchEvent(new inside.MessageEvent("message", { data }));
      this.waiting = [];
      const script = inside.document.createElement("script");
      script.src = new URL(address, document.baseURI);
      script.onload = () => {
        for (const data of this.waiting.splice(0)) this.send(data);
        this.waiting = null;
      };
      script.onerror = () => this.dispatchEvent(new Event("error"));
      inside.document.body.append(script);
    }

    answer(data) {
      const event = new MessageEvent("message", { data });
      setTimeout(() => {
        this.dispatchEvent(event);
        this.onmessage?.(event);
      });
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else setTimeout(() => this.send(data));
    }

    terminate() {}
  };
  window.Worker = window.IFrameWorker;
}
