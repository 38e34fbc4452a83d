"""Makes an IA3 adapter for the tiny Llama with peft, and what the model computes and learns with it, on a
dense base, on NF4, and on the values of HQQ's weights: peft has no IA3 for HQQ's layers.

usage: make_ia3.py GOLDEN OUT

GOLDEN: the committed folder (tests/golden); its model and data are the inputs.
OUT: receives OUT/ia3.
"""

import shutil
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch
import transformers
from peft import IA3Config, get_peft_model

from adapter_results import base, save_adapter, save_results

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

LLAMA = Path(sys.argv[1]) / "llama"
OUT = Path(sys.argv[2]) / "ia3"


def make_adapter():
    """Factors around one: k_proj and v_proj scale what they give, down_proj what it takes."""
    config = IA3Config(
        task_type="CAUSAL_LM",
        target_modules=["k_proj", "v_proj", "down_proj"],
        feedforward_modules=["down_proj"],
    )
    model = get_peft_model(base(LLAMA, "f32"), config)
    torch.manual_seed(7)
    with torch.no_grad():
        for name, param in model.named_parameters():
            if "ia3_l" in name:
                param.copy_(1 + 0.2 * torch.randn_like(param))
    save_adapter(model, OUT / "adapter")


shutil.rmtree(OUT, ignore_errors=True)
OUT.mkdir(parents=True)
make_adapter()
save_results(LLAMA, OUT, ["self_attn.k_proj", "mlp.down_proj"])
