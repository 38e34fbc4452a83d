"""Conversations -> what transformers' chat templates make of them: token ids and assistant masks.

Usage: chat.py OUT    writes OUT/chat/: two tokenizers and cases.json.gz
"""

import gzip
import json
import random
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

# The published texts; the tokens that each names are those of its model.
TEMPLATES = {
    # meta-llama/Llama-2-7b-chat-hf
    "llama2": "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    # meta-llama/Meta-Llama-3-8B-Instruct
    "llama3": "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    # mistralai/Mistral-7B-Instruct-v0.1
    "mistral": "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token + ' ' }}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}",
    # the ChatML of transformers' manual
    "chatml": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    # HuggingFaceH4/zephyr-7b-beta
    "zephyr": "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
}

# The same with the tags that transformers needs for its masks: around an answer and its end token.
TAGS = {
    "llama2": [
        (
            "{{ ' '  + content.strip() + ' ' + eos_token }}",
            "{% generation %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endgeneration %}",
        )
    ],
    "llama3": [
        (
            "{{ content }}{% endfor %}",
            "{% if message['role'] == 'assistant' %}{{ ('' if loop.index0 else bos_token) + '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% generation %}{{ message['content'] | trim + '<|eot_id|>' }}{% endgeneration %}{% else %}{{ content }}{% endif %}{% endfor %}",
        )
    ],
    "mistral": [
        (
            "{{ message['content'] + eos_token + ' ' }}",
            "{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}{{ ' ' }}",
        )
    ],
    "chatml": [
        (
            "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}",
            "{{'<|im_start|>' + message['role'] + '\n'}}{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}",
        )
    ],
    "zephyr": [
        (
            "{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n",
            "{{ '<|assistant|>\n' }}{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}{{ '\n' }}",
        )
    ],
}

# Template -> tokenizer, begin and end token.
MODELS = {
    "llama2": ("pieces", "<s>", "</s>"),
    "llama3": ("bytes", "<|begin_of_text|>", "<|eot_id|>"),
    "mistral": ("pieces", "<s>", "</s>"),
    "chatml": ("bytes", None, "<|im_end|>"),
    "zephyr": ("pieces", "<s>", "</s>"),
}

SENTENCES = [
    "What is the capital of France?",
    "The capital of France is Paris.",
    "  two spaces before and one behind ",
    "",
    " ",
    "\n\nA line end, twice, comes first.",
    "It ends with line ends.\n\n",
    "Grüße aus Köln! 你好，世界。 \U0001f389\U0001f680 e\u0301 \u200bzero width",
    "def add(a, b):\n    return a + b\n\n\nprint(add(1, 2))  # 3",
    "```rust\nfn main() {\n\tprintln!(\"{}\", 1);\n}\n```",
    "[INST] not an instruction [/INST] <<SYS>> nor this <</SYS>>",
    "{{ messages }} {% raw %} {# no comment #} {% endraw %}",
    "1. one\n2. two\n   - three",
    "Quotes \"double\" 'single' and a back\\slash.",
    "<b>html & entities</b>",
    "नमस्ते दुनिया",
    "Yes.",
    "a" * 40,
]
SYSTEMS = ["You are a helpful assistant.", "", "  Answer in\none word.  ", "Réponds en français."]


def conversation(rng):
    turns = []
    if rng.random() < 0.4:
        turns.append({"role": "system", "content": rng.choice(SYSTEMS)})
    for _ in range(rng.choice([1, 1, 2, 3])):
        turns.append({"role": "user", "content": rng.choice(SENTENCES)})
        turns.append({"role": "assistant", "content": rng.choice(SENTENCES)})
    kind = rng.random()
    if kind < 0.1:
        turns.append({"role": "user", "content": rng.choice(SENTENCES)})
    elif kind < 0.2:
        turns.insert(-1, {"role": "user", "content": "And once more."})
    return turns


def byte_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=480, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(SENTENCES + SYSTEMS, trainer)
    return json.loads(tokenizer.to_str())


def piece_tokenizer():
    """As Llama 2's: white space is a letter, a word begins the text, bytes stand in for the unknown."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    special = ["<unk>", "<s>", "</s>"]
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    plain = [text for text in SENTENCES + SYSTEMS if text.isascii()]
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special + fallback, show_progress=False)
    tokenizer.train_from_iterator(plain, trainer)
    tokenizer.pre_tokenizer = None
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    described = json.loads(tokenizer.to_str())
    described["added_tokens"] = [token for token in described["added_tokens"] if token["content"] in special]
    return described


def runs(mask):
    """[start, end) of each run of ones."""
    edges = [i for i in range(len(mask) + 1) if (mask[i - 1] if i else 0) != (mask[i] if i < len(mask) else 0)]
    return [edges[i : i + 2] for i in range(0, len(edges), 2)]


def case(tokenizer, template, tagged, messages):
    try:
        text = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False)
    except Exception as error:
        return {"raises": str(error)}
    assert text == tokenizer.apply_chat_template(messages, chat_template=tagged, tokenize=False)
    plain = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=True, return_dict=True)
    masked = tokenizer.apply_chat_template(
        messages, chat_template=tagged, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    assert plain["input_ids"] == masked["input_ids"]
    prompt = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, add_generation_prompt=True)
    assert prompt.startswith(text)
    return {"ids": plain["input_ids"], "trained": runs(masked["assistant_masks"]), "prompt": prompt[len(text) :]}


def main():
    out = Path(sys.argv[1]) / "chat"
    out.mkdir(parents=True, exist_ok=True)
    for name, described in [("bytes", byte_tokenizer()), ("pieces", piece_tokenizer())]:
        (out / f"{name}.json").write_text(json.dumps(described, ensure_ascii=False, separators=(",", ":")) + "\n")
    rng = random.Random(7)
    conversations = [conversation(rng) for _ in range(200)]
    cases = {"conversations": conversations, "templates": {}}
    for name, template in TEMPLATES.items():
        kind, bos, eos = MODELS[name]
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(out / f"{kind}.json"), bos_token=bos, eos_token=eos)
        tagged = template
        for old, new in TAGS[name]:
            assert old in tagged
            tagged = tagged.replace(old, new)
        cases["templates"][name] = {
            "tokenizer": kind,
            "bos_token": bos,
            "eos_token": eos,
            "template": template,
            "tagged": tagged,
            "results": [case(tokenizer, template, tagged, messages) for messages in conversations],
        }
    text = json.dumps(cases, ensure_ascii=False, separators=(",", ":")) + "\n"
    (out / "cases.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


main()
