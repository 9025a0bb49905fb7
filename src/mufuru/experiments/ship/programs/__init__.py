"""Programs that `mufuru export --to onnx` copies into a folder as predict.py; mufuru never runs them."""
