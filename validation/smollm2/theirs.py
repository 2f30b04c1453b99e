"""What transformers computes from a snapshot, in float32: theirs.py FOLDER FILE.npz.

For three prompts: their ids, the logits of the last position, the twenty largest of every one, the log-probability of
every next token, and 24 greedy tokens.
"""

import sys

import numpy as np
import torch
import transformers

transformers.utils.logging.disable_progress_bar()
folder, file = sys.argv[1:]
PROMPTS = ("The capital of France is", "Once upon a time, there was a little")
CHAT = [{"role": "user", "content": "What is the capital of Japan?"}]

tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
model.eval()
chat = tokenizer.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
found = {}
with torch.inference_mode():
    for i, text in enumerate((*PROMPTS, chat)):
        ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        logits = model(ids).logits[0]
        top = logits.topk(20)
        following = logits.log_softmax(-1)[:-1].gather(1, ids[0, 1:, None])[:, 0]
        new = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=24)
        found |= {
            f"ids{i}": ids[0],
            f"last_logits{i}": logits[-1],
            f"top20_ids{i}": top.indices,
            f"top20_logits{i}": top.values,
            f"logprob{i}": following,
            f"gen{i}": new[0],
        }
np.savez(file, **{name: value.numpy() for name, value in found.items()})
