"""Makes a VeRA adapter for the tiny Llama with peft, and what the model computes and learns with it, on a dense
base, on NF4, and on the values of HQQ's weights. The projections are those that peft draws from the key.

usage: make_vera.py GOLDEN OUT

GOLDEN: the committed folder (tests/golden); its model and data are the inputs.
OUT: receives OUT/vera: `adapter` with the projections and `adapter_unsaved` without them.
"""

import shutil
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch
import transformers
from peft import VeraConfig, get_peft_model

from adapter_results import base, save_adapter, save_results

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

LLAMA = Path(sys.argv[1]) / "llama"
OUT = Path(sys.argv[2]) / "vera"


def make_adapters():
    """Sites of three shapes, which take other parts of the projections; factors away from where they begin."""
    for name, save_projection in [("adapter", True), ("adapter_unsaved", False)]:
        config = VeraConfig(
            task_type="CAUSAL_LM",
            r=8,
            target_modules=["q_proj", "v_proj", "down_proj"],
            projection_prng_key=5,
            save_projection=save_projection,
            d_initial=0.2,
        )
        model = get_peft_model(base(LLAMA, "f32"), config)
        torch.manual_seed(7)
        with torch.no_grad():
            for key, param in model.named_parameters():
                if "vera_lambda" in key:
                    param.copy_(param + 0.3 * torch.randn_like(param))
        save_adapter(model, OUT / name)


shutil.rmtree(OUT, ignore_errors=True)
OUT.mkdir(parents=True)
make_adapters()
save_results(LLAMA, OUT, ["self_attn.v_proj", "mlp.down_proj"])
