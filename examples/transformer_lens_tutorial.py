"""A TransformerLens tutorial on a model of mechint: induction heads, found by hand.

A HookedTransformer of mechint takes what TransformerLens users type: return types, hooks,
`ActivationCache`, TransformerLens's own patching functions. Here they find the two heads by which a
planted model continues a repeated sequence: one that attends to the previous token, and one that
reads what that wrote. With SIZE=full the model is trained.
"""

# %% A model that continues repeated sequences
import os

import torch
from transformer_lens import patching

import mechint
import tasks
from mechint import planted

SIZE = os.environ.get("SIZE", "smoke")  # smoke: a planted model; full: a trained one, minutes
if SIZE == "full":
    (run,) = mechint.train(tasks.make("repeated-tokens", n=8, length=4), {}, {}, seeds=[0])
    subject = run.subject()
else:
    subject = planted.induction_head(8, 4, noise=0.02, rotation_seed=1, seed=1).subject
model = subject.model.eval()
print(model.cfg.n_layers, "layers,", model.cfg.n_heads, "heads,", model.cfg.n_params, "weights")

# %% Tokens, and the text that they stand for
tokens = subject.data.tokens[:64]
print(model.to_str_tokens(tokens[0]))
print("one token:", model.to_single_token(model.to_str_tokens(tokens[0])[0]))

# %% Logits, and the cache of every activation
logits, cache = model.run_with_cache(tokens)
positions, targets = subject.data.answers.at(-1)
last, answers = int(positions[0]), targets[:64, 0]
predicted = logits[:, last].argmax(-1)
print(f"last answer right: {(predicted == answers).float().mean():.0%}")
for name in ("resid_pre", "q", "pattern", "z", "attn_out"):
    print(f"{name:<10}", tuple(cache[name, 0].shape))

# %% What each head attends to: the previous token, or the token after the last occurrence
half = tokens.shape[1] // 2
for layer in range(model.cfg.n_layers):
    pattern = cache["pattern", layer]  # (batch, head, query, key)
    previous = pattern.diagonal(-1, -2, -1).mean((0, 2))
    induction = pattern.diagonal(1 - half, -2, -1)[..., 1:].mean((0, 2))
    for head, scores in enumerate(zip(previous, induction, strict=True)):
        print(f"L{layer}H{head}: previous token {scores[0]:.2f}, induction {scores[1]:.2f}")

# %% Direct logit attribution: what each component writes along the answer's direction
components, labels = cache.decompose_resid(pos_slice=last, return_labels=True)
direct = cache.logit_attrs(components, answers, pos_slice=last).mean(-1)
for label, value in zip(labels, direct, strict=True):
    print(f"{label:<12}{value:8.2f}")

# %% Activation patching: which head's output, put in from a clean run, restores the answer
corrupted = tokens.roll(1, 0)


def answer_logit(logits: torch.Tensor) -> torch.Tensor:
    """Mean logit of the clean answer where it is read."""
    return logits[torch.arange(len(answers)), last, answers].mean()


restored = patching.get_act_patch_attn_head_out_all_pos(model, corrupted, cache, answer_logit)
low, high = answer_logit(model(corrupted)), answer_logit(logits)
for label, value in zip(model.all_head_labels(), restored.flatten(), strict=True):
    print(f"{label}: {(value - low) / (high - low):.0%} of the answer's logit restored")

# %% Hooks: zero a head, for one run or until hooks are reset
best = int(restored.flatten().argmax())
layer, head = divmod(best, model.cfg.n_heads)


def zero_head(z: torch.Tensor, hook: object) -> torch.Tensor:
    """z (batch, pos, head, d_head) without the head."""
    z[:, :, head] = 0
    return z


name = f"blocks.{layer}.attn.hook_z"
without = model.run_with_hooks(tokens, return_type="logits", fwd_hooks=[(name, zero_head)])
print(f"answer's logit: {high:.2f}, without L{layer}H{head} {answer_logit(without):.2f}")
model.add_hook(name, zero_head)
assert torch.equal(model(tokens), without)
model.reset_hooks()
assert torch.equal(model(tokens), logits)

# %% The next token's loss, position by position: low where the sequence repeats
if model.cfg.d_vocab == model.cfg.d_vocab_out:
    losses = model(tokens, return_type="loss", loss_per_token=True).mean(0)
    print("first half:", losses[: half - 1].mean().item(), "second:", losses[half:].mean().item())

# %% Weights, as TransformerLens stacks and factors them
print("W_Q", tuple(model.W_Q.shape), "b_O", tuple(model.b_O.shape), "OV", tuple(model.OV.shape))
print("OV singular values of the head:", model.OV[layer, head].S[:4].tolist())
