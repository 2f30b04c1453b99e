"""Reads snapshots with transformers: a request on stdin, logits into files, a report on stdout."""

import json
import sys

import numpy as np
import torch
import transformers

transformers.utils.logging.disable_progress_bar()
ask = json.load(sys.stdin)
read = []
for folder in ask["folders"]:
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    stored = transformers.AutoConfig.from_pretrained(folder).dtype
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        logits = model.eval()(torch.from_numpy(np.load(f"{folder}.ids.npy")).long()).logits
    np.save(f"{folder}.theirs.npy", logits.numpy())
    chat = tokenizer.apply_chat_template(ask["chat"], tokenize=False, add_generation_prompt=True)
    problems = [*info["missing_keys"], *info["unexpected_keys"], *info["mismatched_keys"]]
    read.append({"problems": problems, "ids": tokenizer(ask["text"])["input_ids"], "chat": chat, "dtype": str(stored)})
print(json.dumps({"read": read, "versions": {"torch": torch.__version__, "transformers": transformers.__version__}}))
