"""Prompts of one's own as the data of a language model that no task of ours was trained on.

    subject = mechint.load("models/gpt2", data="prompts.jsonl")
    subject = mechint.load("models/gpt2", data=[{"prompt": "2 + 2 =", "answer": " 4"}])

A ``.txt`` file holds one text per line, and every token of it is to be predicted from those before
it. A ``.jsonl`` file holds one object per line: {"text": …} is the same; {"prompt": …, "answer": …}
asks for one token after the prompt; with "counterfactual": {"prompt": …, "answer": …} beside it the
two prompts are a pair for patching, whose answers may be of several tokens, or lists of right ones
of one token. In place of a text a list of token ids may stand, in place of an answer a token id. A
list in Python holds the same objects, or texts.

Every text begins with BOS where the tokenizer's own ``encode`` puts it, and `prepend_bos` decides
otherwise; the model follows the same rule when it is given a text.
"""

from mechint.prompts.reading import Example
from mechint.prompts.task import Prompts

__all__ = ["Example", "Prompts"]
