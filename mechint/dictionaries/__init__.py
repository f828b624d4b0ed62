"""Sparse autoencoders of SAELens as interventions, and activations for SAELens to train them on.

    batches = mechint.activation_batches(subject, "blocks.0.hook_resid_post", 4096, epochs=None)
    dictionary = mechint.load_dictionary("sae/")          # cfg.json, sae_weights.safetensors
    recovery(subject, dictionary).recovered               # share of the loss that is kept
    loss_under(subject, [Reconstruct(dictionary.site, dictionary, without=(3, 17))])

mechint trains no sparse autoencoders and does not import SAELens: files and tensors are exchanged.
"""

from mechint.dictionaries.dictionary import Dictionary, Reconstruct, Recovery, recovery
from mechint.dictionaries.export import activation_batches
from mechint.dictionaries.files import load_dictionary

__all__ = [
    "Dictionary",
    "Reconstruct",
    "Recovery",
    "activation_batches",
    "load_dictionary",
    "recovery",
]
