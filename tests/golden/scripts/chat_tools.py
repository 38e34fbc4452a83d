"""Conversations with tools -> what transformers' chat templates make of them: token ids and assistant masks.

Usage: chat_tools.py OUT    writes OUT/chat/tools.json beside the tokenizers that chat.py wrote there
"""

import json
import sys
from pathlib import Path

from transformers import PreTrainedTokenizerFast

# Qwen/Qwen2.5-7B-Instruct
TEMPLATE = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}
    {%- endif %}
    {{- "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\n<tool_call>\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- message.content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""

# The tags that transformers needs for its masks: around an answer or its calls, and the end token.
TAGS = [
    (
        """ or (message.role == "assistant" and not message.tool_calls) %}""",
        """ %}""",
    ),
    (
        """    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
""",
        """    {%- elif message.role == "assistant" and not message.tool_calls %}
        {{- '<|im_start|>assistant\\n' }}{% generation %}{{- message.content + '<|im_end|>' }}{% endgeneration %}{{- '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>assistant\\n' }}{% generation %}
        {%- if message.content %}
            {{- message.content }}
        {%- endif %}
""",
    ),
    (
        """            {{- '\\n<tool_call>\\n{"name": "' }}""",
        """            {{- '' if loop.first and not message.content else '\\n' }}{{- '<tool_call>\\n{"name": "' }}""",
    ),
    (
        """        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}""",
        """        {{- '<|im_end|>' }}{% endgeneration %}{{- '\\n' }}
    {%- elif message.role == "tool" %}""",
    ),
]

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a place, in °C",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "days": {"type": "integer", "default": 1}},
            "required": ["place"],
        },
    },
}
TIME = {"type": "function", "function": {"name": "get_time", "description": "The time <now>", "parameters": {}}}


def call(name, arguments):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


USER = {"role": "user", "content": "What is the weather in Köln?"}
ANSWER = {"role": "assistant", "content": "Rain, 12 °C."}
CALL = {"role": "assistant", "content": None, "tool_calls": [call("get_weather", {"place": "Köln", "days": 2})]}
SAID = {"role": "assistant", "content": "Let me see.", "tool_calls": [call("get_weather", {"place": "Köln"}), call("get_time", {})]}
RESULT = {"role": "tool", "name": "get_weather", "content": '{"celsius": 12.5, "sky": "rain"}'}

ROWS = [
    {"tools": [WEATHER], "messages": [USER, CALL, RESULT, ANSWER]},
    {"tools": [WEATHER, TIME], "messages": [{"role": "system", "content": "Be brief."}, USER, SAID, RESULT, RESULT, ANSWER]},
    {"tools": [TIME], "messages": [USER, {"role": "assistant", "content": "I cannot know."}]},
    {"tools": [], "messages": [USER, ANSWER]},
    {"tools": None, "messages": [USER, ANSWER, USER, {"role": "assistant", "content": "As I said."}]},
    {"tools": [WEATHER], "messages": [USER, CALL, RESULT, ANSWER, USER, CALL, RESULT, ANSWER]},
]


def runs(mask):
    """[start, end) of each run of ones."""
    edges = [i for i in range(len(mask) + 1) if (mask[i - 1] if i else 0) != (mask[i] if i < len(mask) else 0)]
    return [edges[i : i + 2] for i in range(0, len(edges), 2)]


def main():
    out = Path(sys.argv[1]) / "chat"
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(out / "bytes.json"), eos_token="<|im_end|>")
    tagged = TEMPLATE
    for old, new in TAGS:
        assert tagged.count(old) == 1, old
        tagged = tagged.replace(old, new)
    results = []
    for row in ROWS:
        render = lambda template: tokenizer.apply_chat_template(
            row["messages"], tools=row["tools"], chat_template=template, tokenize=False
        )
        assert render(TEMPLATE) == render(tagged)
        masked = tokenizer.apply_chat_template(
            row["messages"],
            tools=row["tools"],
            chat_template=tagged,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        results.append({"ids": masked["input_ids"], "trained": runs(masked["assistant_masks"])})
    cases = {"template": TEMPLATE, "tagged": tagged, "rows": ROWS, "results": results}
    (out / "tools.json").write_text(json.dumps(cases, ensure_ascii=False, separators=(",", ":")) + "\n")


main()
