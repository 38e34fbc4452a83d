"""A fully fine-tuned model directory loads in transformers, and its loss is the host's."""

import sys

from runs import MODEL, base, data, expect_near, loss, metrics, train
from transformers import AutoTokenizer, LlamaForCausalLM

out = train("full", "", 20, sets={"optim.learning_rate": 1e-3})
model, report = LlamaForCausalLM.from_pretrained(out / "model", output_loading_info=True)
problems = {key: value for key, value in report.items() if value}
if problems:
    sys.exit(f"transformers reports {problems}")
_, held_out = metrics(out)
theirs = loss(base("f32", out / "model"), data()["eval_tokens"])
expect_near("held-out loss after full fine-tuning", held_out, theirs)

text = "In the beginning God created the heaven and the earth."
ours, theirs = (AutoTokenizer.from_pretrained(path)(text)["input_ids"] for path in (out / "model", MODEL))
if ours != theirs:
    sys.exit("the tokenizer changed on its way to the output")
print("the tokenizer came along")
