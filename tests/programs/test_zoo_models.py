"""A program zoo: models of sequences, each trained for a few steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from zoo import Found, program, trained

VOCABULARY, EMBEDDED, HIDDEN = 11, 7, 20


@program
def test_attention_decoder_step_by_step(layer_type: Any) -> Found:
    class Translator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(VOCABULARY, EMBEDDED)
            self.encoder = layer_type(EMBEDDED, HIDDEN, batch_first=True, bidirectional=True)
            self.bridge, self.score = nn.Linear(2 * HIDDEN, HIDDEN), nn.Linear(HIDDEN, 2 * HIDDEN)
            self.decoder = layer_type(EMBEDDED + 2 * HIDDEN, HIDDEN, batch_first=True)
            self.out = nn.Linear(HIDDEN, VOCABULARY)

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            memory, h = self.encoder(self.embed(source))
            h = self.bridge(torch.cat([h[0], h[1]], -1)).unsqueeze(0)
            logits = []
            for t in range(target.size(1)):
                weights = torch.bmm(self.score(h[-1]).unsqueeze(1), memory.transpose(1, 2)).softmax(-1)
                step = torch.cat([self.embed(target[:, t : t + 1]), torch.bmm(weights, memory)], -1)
                output, h = self.decoder(step, h)
                logits.append(self.out(output.squeeze(1)))
            return torch.stack(logits, 1)

    source, target = torch.randint(VOCABULARY, (4, 6)), torch.randint(VOCABULARY, (4, 5))
    model = Translator()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(3):
        optimizer.zero_grad()
        logits = model(source, target[:, :-1])
        F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten()).backward()
        optimizer.step()
    return trained(model, logits=logits)


@program
def test_pointer_decoder_with_a_cell(cell_type: Any) -> Found:
    cell, query = cell_type(EMBEDDED, HIDDEN), nn.Linear(HIDDEN, EMBEDDED)
    numbers, order = torch.randn(5, 4, EMBEDDED), torch.stack([torch.randperm(4) for _ in range(5)])
    optimizer = torch.optim.SGD([*cell.parameters(), *query.parameters()], lr=0.3)
    for _ in range(2):
        optimizer.zero_grad()
        h, step, loss = None, torch.zeros(5, EMBEDDED), torch.zeros(())
        for t in range(4):
            h = cell(step, h)
            scores = torch.einsum("bd,bnd->bn", query(h), numbers)
            loss = loss + F.cross_entropy(scores, order[:, t])
            step = numbers[torch.arange(5), order[:, t]]
        loss.backward()
        optimizer.step()
    return trained(cell, query, h=h, loss=loss)


@program
def test_actor_critic_with_a_carried_state(cell_type: Any) -> Found:
    cell, actor, critic = cell_type(4, HIDDEN), nn.Linear(HIDDEN, 3), nn.Linear(HIDDEN, 1)
    parameters = [p for module in (cell, actor, critic) for p in module.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.01)
    h, observation = torch.zeros(6, HIDDEN), torch.randn(6, 4)
    for _ in range(3):
        logs, values, rewards, h = [], [], [], h.detach()
        for t in range(5):
            h = cell(observation, h)
            policy = torch.distributions.Categorical(logits=actor(h))
            action = policy.sample()
            logs.append(policy.log_prob(action))
            values.append(critic(h).squeeze(-1))
            observation = (observation.roll(1, -1) + 0.1 * action.unsqueeze(-1)).sin()
            rewards.append((action == t % 3).float())
            h = h * (rewards[-1] == 0).unsqueeze(-1)  # an episode that has ended begins anew
        returns = torch.stack(rewards).flip(0).cumsum(0).flip(0)
        advantage = returns - torch.stack(values)
        loss = advantage.square().mean() - (torch.stack(logs) * advantage.detach()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return trained(cell, actor, critic, h=h, loss=loss)


@program
def test_recurrent_q_network_acts_and_learns(layer_type: Any) -> Found:
    """Each step of acting is without gradients, between updates that change the weights in place."""
    q = nn.ModuleList([layer_type(4, HIDDEN), nn.Linear(HIDDEN, 2)])
    optimizer = torch.optim.RMSprop(q.parameters(), lr=0.01)
    h, memory, x = torch.zeros(1, 1, HIDDEN), [], torch.ones(1, 1, 4)
    for t in range(12):
        with torch.no_grad():
            output, h = q[0](x, h)
            action = int(q[1](output).argmax())
        memory.append((x, action, float(action == t % 2)))
        x = (x.roll(1, -1) * (1 + action)).cos()
        if t % 4 == 3:
            seen = torch.cat([step for step, _, _ in memory[-4:]])
            values = q[1](q[0](seen)[0]).squeeze(1)
            chosen = values[torch.arange(4), torch.tensor([action for _, action, _ in memory[-4:]])]
            optimizer.zero_grad()
            F.smooth_l1_loss(chosen, torch.tensor([reward for _, _, reward in memory[-4:]])).backward()
            optimizer.step()
    return trained(q, h=h, values=values)


@program
def test_teacher_forcing_with_packed_sequences(layer_type: Any) -> Found:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(VOCABULARY, EMBEDDED, padding_idx=0)
            self.rnn = layer_type(EMBEDDED, HIDDEN, 2, batch_first=True, dropout=0.2, bidirectional=True)
            self.out = nn.Linear(2 * HIDDEN, VOCABULARY)

        def forward(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
            packed = pack_padded_sequence(self.embed(tokens), lengths, batch_first=True, enforce_sorted=False)
            output, h_n = self.rnn(packed)
            padded, _ = pad_packed_sequence(output, batch_first=True, total_length=tokens.size(1))
            return self.out(padded), h_n

    lengths = torch.tensor([3, 6, 1, 5])
    tokens = torch.randint(1, VOCABULARY, (4, 6)) * (torch.arange(6) < lengths.unsqueeze(1))
    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    for _ in range(3):
        logits, h_n = model(tokens, lengths)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return trained(model, logits=logits, h_n=h_n)


@program
def test_language_model_by_truncated_back_propagation(layer_type: Any) -> Found:
    """With tied weights of embedding and output, a carried state, clipping and an evaluation after each window."""

    class LanguageModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(VOCABULARY, HIDDEN)
            self.rnn = layer_type(HIDDEN, HIDDEN, 2, dropout=0.3)
            self.out = nn.Linear(HIDDEN, VOCABULARY)
            self.out.weight = self.embed.weight

        def forward(self, tokens: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
            output, h = self.rnn(self.embed(tokens), h)
            return self.out(output), h

    text, model = torch.randint(VOCABULARY, (13, 4)), LanguageModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    h, valid = torch.zeros(2, 4, HIDDEN), []
    for begin in range(0, 12, 4):
        model.train()
        logits, h = model(text[begin : begin + 4], h.detach())
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), text[begin + 1 : begin + 5].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        model.eval()
        with torch.no_grad():
            valid.append(
                F.cross_entropy(model(text, torch.zeros(2, 4, HIDDEN))[0][:-1].flatten(0, 1), text[1:].flatten())
            )
    return trained(model, logits=logits, h=h, valid=torch.stack(valid))


@program
def test_gradient_accumulation(layer_type: Any) -> Found:
    model = nn.ModuleDict({"rnn": layer_type(EMBEDDED, HIDDEN, batch_first=True), "out": nn.Linear(HIDDEN, 1)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    x, target, losses = torch.randn(12, 5, EMBEDDED), torch.randn(12), []
    for step, (part, wanted) in enumerate(zip(x.split(2), target.split(2), strict=True)):
        _, h_n = model["rnn"](part)
        loss = F.mse_loss(model["out"](h_n[-1]).squeeze(-1), wanted) / 3
        loss.backward()
        losses.append(loss.detach())
        if step % 3 == 2:
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
    return trained(model, losses=torch.stack(losses))


@program
def test_siamese_network_with_shared_weights(layer_type: Any) -> Found:
    """One layer twice in a graph, and a second layer that is made of the first one's parameters."""
    left, right = layer_type(EMBEDDED, HIDDEN), layer_type(EMBEDDED, HIDDEN)
    for name, parameter in left.named_parameters():
        setattr(right, name, parameter)
    optimizer = torch.optim.SGD(left.parameters(), lr=0.2)
    a, b, same = torch.randn(5, 4, EMBEDDED), torch.randn(3, 4, EMBEDDED), torch.tensor([1.0, -1, 1, -1])
    for _ in range(2):
        loss = F.cosine_embedding_loss(left(a)[1][0], right(b)[1][0], same) + left(b)[0].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return trained(left, right, loss=loss)


@program
def test_autoencoder_repeats_the_code(layer_type: Any) -> Found:
    """The decoder's input is expanded, its first state a transposed view: no memory of their own."""
    encoder, decoder = layer_type(EMBEDDED, HIDDEN, 2), layer_type(HIDDEN, EMBEDDED)
    start = nn.Parameter(torch.randn(EMBEDDED, 1, 1))
    optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters(), start], lr=0.2)
    x = torch.randn(4, 6, EMBEDDED).permute(1, 0, 2)
    for _ in range(2):
        code = encoder(x)[1][-1]
        output, h_n = decoder(code.unsqueeze(0).expand(6, -1, -1), start.expand(-1, 4, -1).permute(2, 1, 0))
        loss = F.mse_loss(output.flip(0), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return trained(encoder, decoder, output=output, h_n=h_n, start=start, start_grad=start.grad)


@program
def test_spectrogram_with_the_ctc_loss(layer_type: Any) -> Found:
    """Imaginary parts of a conjugate are a negative view, real parts a strided one: neither is plain memory."""
    rnn, out = layer_type(9, HIDDEN, bidirectional=True), nn.Linear(2 * HIDDEN, VOCABULARY)
    spectrum = torch.stft(torch.randn(4, 112), 16, 8, window=torch.hann_window(16), return_complex=True).conj()
    optimizer = torch.optim.SGD([*rnn.parameters(), *out.parameters()], lr=0.1)
    for part in (spectrum.real, spectrum.imag, spectrum.imag):
        logits = out(rnn(part.permute(2, 0, 1))[0])
        targets, steps = torch.randint(1, VOCABULARY, (4, 5)), torch.full((4,), logits.size(0))
        loss = F.ctc_loss(logits.log_softmax(-1), targets, steps, torch.tensor([5, 4, 3, 5]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        plain = rnn(spectrum.imag.permute(2, 0, 1))[0]
    return trained(rnn, out, logits=logits, plain=plain)


@program
def test_residual_layers_that_work_in_place(layer_type: Any) -> Found:
    """`+=` and in-place dropout change what the layer returned, before its backward pass."""
    layers = nn.ModuleList([layer_type(HIDDEN, HIDDEN) for _ in range(3)])
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    x = torch.randn(5, 4, HIDDEN)
    for _ in range(2):
        output = x
        for layer in layers:
            residual = output
            output, _ = layer(output)
            output += residual
            output = F.dropout(output, 0.1, inplace=True)
        loss = output.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return trained(layers, output=output)


@program
def test_states_are_reset_in_place(cell_type: Any) -> Found:
    """The states of ended episodes are overwritten with a learned one between two steps."""
    cell, first = cell_type(4, HIDDEN), nn.Parameter(torch.randn(HIDDEN))
    optimizer = torch.optim.SGD([*cell.parameters(), first], lr=0.2)
    for _ in range(2):
        h, outputs = first.expand(6, HIDDEN), []
        for t in range(5):
            h = cell(torch.randn(6, 4), h)
            h[torch.arange(6) % 3 == t % 3] = first
            outputs.append(h)
        loss = torch.stack(outputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return trained(cell, first=first, first_grad=first.grad, h=h)


@program
def test_scheduled_sampling_feeds_the_output_back(cell_type: Any) -> Found:
    cells, out = nn.ModuleList([cell_type(3, HIDDEN), cell_type(HIDDEN, HIDDEN)]), nn.Linear(HIDDEN, 3)
    optimizer = torch.optim.AdamW([*cells.parameters(), *out.parameters()], lr=0.01)
    x = torch.randn(6, 4, 3).cumsum(0)
    for _ in range(2):
        states, step, predictions = [torch.zeros(4, HIDDEN)] * 2, x[0], []
        for t in range(5):
            states[0] = cells[0](step, states[0])
            states[1] = cells[1](states[0], states[1])
            predictions.append(out(states[1]))
            step = torch.where(torch.rand(4, 1) < 0.5, x[t + 1], predictions[-1])
        loss = F.mse_loss(torch.stack(predictions), x[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return trained(cells, out, predictions=torch.stack(predictions))


@program
def test_beam_search_after_training(layer_type: Any) -> Found:
    embed, rnn, out = nn.Embedding(VOCABULARY, EMBEDDED), layer_type(EMBEDDED, HIDDEN, 2), nn.Linear(HIDDEN, VOCABULARY)
    model = nn.ModuleList([embed, rnn, out])
    text = torch.randint(VOCABULARY, (6, 4))
    F.cross_entropy(out(rnn(embed(text[:-1]))[0]).flatten(0, 1), text[1:].flatten()).backward()
    torch.optim.SGD(model.parameters(), lr=0.5).step()
    model.eval()
    with torch.inference_mode():
        tokens, scores, h = torch.tensor([[1] * 3]), torch.tensor([0.0, -1e9, -1e9]), torch.zeros(2, 3, HIDDEN)
        for _ in range(5):
            output, h = rnn(embed(tokens[-1:]), h)
            total = scores.unsqueeze(1) + out(output[0]).log_softmax(-1)
            scores, best = total.flatten().topk(3)
            h = h[:, best // VOCABULARY]
            tokens = torch.cat([tokens[:, best // VOCABULARY], (best % VOCABULARY).unsqueeze(0)])
    return trained(model, scores=scores, h=h, tokens=tokens.shape)


@program
def test_wasserstein_critic_with_a_gradient_penalty(layer_type: Any) -> Found:
    """The penalty is a gradient's norm: the critic's step differentiates twice."""
    maker, critic, judge = layer_type(5, 4), layer_type(4, HIDDEN), nn.Linear(HIDDEN, 1)
    steps = [
        torch.optim.SGD(maker.parameters(), 0.1),
        torch.optim.SGD([*critic.parameters(), *judge.parameters()], 0.1),
    ]
    for turn in range(4):
        fake, real = maker(torch.randn(6, 3, 5))[0], torch.randn(6, 3, 4).cumsum(0)
        if turn % 2:
            mixed = (0.5 * fake + 0.5 * real).detach().requires_grad_()
            (slope,) = torch.autograd.grad(judge(critic(mixed)[1][0]).sum(), mixed, create_graph=True)
            penalty = (slope.norm(2, dim=(0, 2)) - 1).square().mean()
            loss = judge(critic(fake.detach())[1][0]).mean() - judge(critic(real)[1][0]).mean() + 10 * penalty
        else:
            loss = -judge(critic(fake)[1][0]).mean()
        for optimizer in steps:
            optimizer.zero_grad()
        loss.backward()
        steps[turn % 2].step()
    return trained(maker, critic, judge, loss=loss, penalty=penalty)


@program
def test_meta_learning_through_an_inner_step(layer_type: Any) -> Found:
    model = nn.ModuleList([layer_type(3, HIDDEN), nn.Linear(HIDDEN, 1)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rnn, out = model

    def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        output, _ = torch.func.functional_call(rnn, weights, (x,))
        return F.mse_loss(out(output), x.cumsum(0).mean(-1, keepdim=True))

    for _ in range(2):
        optimizer.zero_grad()
        for task in range(2):
            x, weights = torch.randn(5, 4, 3) + task, dict(rnn.named_parameters())
            slopes = torch.autograd.grad(loss(weights, x), list(weights.values()), create_graph=True)
            adapted = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), slopes, strict=True)}
            outer = loss(adapted, x.flip(0))
            outer.backward()
        optimizer.step()
    return trained(model, outer=outer)


@program
def test_adversarial_examples(layer_type: Any) -> Found:
    """Gradients by the input alone: the frozen model's parameters get none."""
    rnn, out = layer_type(3, HIDDEN).requires_grad_(False).eval(), nn.Linear(HIDDEN, 2).requires_grad_(False)
    x, label = torch.randn(6, 4, 3), torch.tensor([0, 1, 0, 1])
    for _ in range(3):
        x = x.detach().requires_grad_()
        logits = out(rnn(x)[0].mean(0))
        F.cross_entropy(logits, label).backward()
        assert x.grad is not None
        x = x + 0.1 * x.grad
    return trained(rnn, out, x=x, logits=logits)


@program
def test_only_a_part_is_used_or_frozen(layer_type: Any) -> Found:
    """The first of two layers is frozen, and only one direction's last state enters the loss."""
    rnn = layer_type(3, HIDDEN, 2, bidirectional=True)
    for name, parameter in rnn.named_parameters():
        parameter.requires_grad_("l1" in name)
    _, h_n = rnn(torch.randn(5, 4, 3))
    h_n[2].square().mean().backward()
    torch.optim.SGD(rnn.parameters(), lr=0.1).step()
    return trained(rnn, h_n=h_n)


@program
def test_unbatched_sequences_one_after_another(layer_type: Any) -> Found:
    rnn, out = layer_type(3, HIDDEN, batch_first=True, bidirectional=True), nn.Linear(2 * HIDDEN, 1)
    optimizer = torch.optim.Adagrad([*rnn.parameters(), *out.parameters()], lr=0.05)
    for length in (5, 1, 3):
        output, h_n = rnn(torch.randn(length, 3), torch.randn(2, HIDDEN))
        loss = out(output).square().sum() + h_n.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return trained(rnn, out, output=output, h_n=h_n)


@program
def test_continues_a_packed_batch_from_states(layer_type: Any) -> Found:
    """Windows over ragged sequences: each goes on from the states in which the one before ended."""
    rnn, x = layer_type(3, HIDDEN, 2), torch.randn(8, 4, 3)
    optimizer = torch.optim.SGD(rnn.parameters(), lr=0.1)
    lengths, h = torch.tensor([8, 6, 5, 7]), torch.zeros(2, 4, HIDDEN)
    for begin in (0, 4):
        within = (lengths - begin).clamp(1, 4)
        packed = pack_padded_sequence(x[begin : begin + 4], within, enforce_sorted=False)
        output, h = rnn(packed, h.detach())
        optimizer.zero_grad()
        (output.data.square().mean() + h.square().mean()).backward()
        optimizer.step()
    return trained(rnn, data=output.data, h=h, order=output.unsorted_indices)


@program
def test_an_empty_batch_among_others(layer_type: Any) -> Found:
    """The last shard of a data set may have nothing."""
    rnn = layer_type(3, HIDDEN, 2, bidirectional=True)
    optimizer, shapes = torch.optim.SGD(rnn.parameters(), lr=0.1), []
    for batch in (3, 0):
        output, h_n = rnn(torch.randn(5, batch, 3))
        optimizer.zero_grad()
        (output.sum() + h_n.sum()).backward()
        optimizer.step()
        shapes += [output.shape, h_n.shape]
    return trained(rnn, output=output, shapes=shapes)


@program
def test_weight_drop_replaces_a_parameter_by_a_tensor(layer_type: Any) -> Found:
    """As in AWD-LSTM: the parameter lives under another name, the layer gets a masked copy before each call."""
    rnn = layer_type(3, HIDDEN)
    raw = rnn.weight_hh_l0
    del rnn._parameters["weight_hh_l0"]
    rnn.register_parameter("weight_hh_l0_raw", raw)
    optimizer = torch.optim.SGD(rnn.parameters(), lr=0.2)
    for _ in range(3):
        rnn.weight_hh_l0 = F.dropout(raw, 0.5)
        output, _ = rnn(torch.randn(5, 4, 3))
        optimizer.zero_grad()
        output.square().mean().backward()
        optimizer.step()
    rnn.weight_hh_l0 = raw.detach().clone()
    with torch.no_grad():
        final = rnn(torch.ones(5, 4, 3))[0]
    return trained(rnn, output=output, final=final)


@program
def test_hypernetwork_makes_the_weights(layer_type: Any) -> Found:
    rnn = layer_type(3, HIDDEN)
    shapes = {name: p.shape for name, p in rnn.named_parameters()}
    task, maker = torch.randn(2), nn.ModuleList([nn.Linear(2, shape.numel()) for shape in shapes.values()])
    optimizer = torch.optim.SGD(maker.parameters(), lr=0.01)
    for _ in range(2):
        made = {name: make(task).view(shapes[name]) for name, make in zip(shapes, maker, strict=True)}
        output, h_n = torch.func.functional_call(rnn, made, (torch.randn(5, 4, 3),))
        optimizer.zero_grad()
        (output.square().mean() + h_n.mean()).backward()
        optimizer.step()
    return trained(maker, rnn, output=output)
