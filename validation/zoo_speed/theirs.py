"""One task of transformers on torch, driven over pipes: report, then run once for every line on stdin."""

import json
import sys
import time

import torch
import transformers

ask = json.loads(sys.argv[1])
torch.set_num_threads(ask["threads"])
model = transformers.AutoModelForCausalLM.from_pretrained(ask["folder"], dtype=torch.float32)
model.eval()
ids = torch.arange(ask["batch"] * ask["prompt"]).reshape(ask["batch"], ask["prompt"]) % ask["ids"]


@torch.inference_mode()
def run():
    if not ask["new_tokens"]:
        return model(ids).logits
    options = {"max_new_tokens": ask["new_tokens"], "min_new_tokens": ask["new_tokens"], "do_sample": False}
    return model.generate(ids, attention_mask=torch.ones_like(ids), pad_token_id=0, **options)


run()
print(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__}), flush=True)
for _ in sys.stdin:
    start = time.perf_counter()
    run()
    print(time.perf_counter() - start, flush=True)
