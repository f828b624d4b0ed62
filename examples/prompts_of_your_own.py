"""A language model and prompts of your own: one clean and one corrupted prompt, then a dozen.

A tiny GPT-2 of transformers learns six capitals here; `mechint.load("models/gpt2", data=...)` opens
any directory in the same way. Few prompts give numbers and no verdict; six pairs give both.
"""

# %% A model and its tokenizer, in memory
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import mechint
from mechint import probe
from mechint.interventions import ablate

CITIES = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid"}
CITIES |= {"Austria": "Vienna", "Poland": "Warsaw", "Greece": "Athens"}
words = ["?", "The", "capital", "of", "is", *CITIES, *CITIES.values()]
whole = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="?"))
whole.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
whole.decoder = decoders.WordPiece(prefix="##")
tokenizer = PreTrainedTokenizerFast(tokenizer_object=whole, unk_token="?")

torch.manual_seed(0)
sizes = {"n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2}
model = GPT2LMHeadModel(GPT2Config(vocab_size=len(words), **sizes)).eval()
texts = [f"The capital of {country} is {city}" for country, city in CITIES.items()]
tokens = torch.tensor(tokenizer(texts)["input_ids"])
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for _ in range(150):
    optimizer.zero_grad()
    model(tokens, labels=tokens).loss.backward()
    optimizer.step()


# %% One clean and one corrupted prompt
def row(country):
    """The prompt about a country, and its answer."""
    return {"prompt": f"The capital of {country} is", "answer": f" {CITIES[country]}"}


one = mechint.load(
    model, data=[row("France") | {"counterfactual": row("Italy")}], tokenizer=tokenizer
)
patched = probe.run("patching", one, components=("head", "mlp"))
print(one.accuracy(), patched.findings[0])
patched.tables["components"].to_frame().nlargest(5, "recovered")

# %% Six pairs: enough to tell from chance
names = list(CITIES)
pairs = [
    row(a) | {"counterfactual": row(b)} for a, b in zip(names, names[1:] + names[:1], strict=True)
]
subject = mechint.load(model, data=pairs, tokenizer=tokenizer)
account = mechint.analyze(subject, "lens", "patching")
account

# %% Without a component, directly
without = ablate(subject, "L0 MLP")
print(without)

# %% Which heads are induction heads: the probe repeats random tokens itself
heads = probe.run("attention", subject)
heads.findings

# %% The same numbers in transformers: no BOS was added, so positions agree
clean = torch.tensor([tokenizer.encode("The capital of France is")])
theirs = model(clean).logits[0, -1].detach()
ours = one.logits()[one.data.tokens.eq(clean).all(1)][0]
gap = float((ours - theirs).abs().max())
print(f"largest difference of a logit: {gap:.1e}")
