"""Renders the templates of this folder with Jinja2 3.1, in the environment that transformers uses.

templates/*.jinja are written in the style of the families they are named after; each is rendered
for every conversation of `CASES` and with every set of variables that makes a difference to it.
The answers go to templates.json. smollm2.jinja is the template of SmolLM2-135M-Instruct itself.
"""
import datetime
import json
import pathlib

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent
NOW = 1732898096  # 2024-11-29 16:34:56 UTC


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def strftime_now(form):
    return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(form)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a <city> & \"more\" – naïve",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "The city"},
        "days": {"type": "integer", "minimum": 1, "enum": [1, 3, 7]},
        "exact": {"type": "boolean", "default": False}},
        "required": ["city"]}}},
    {"type": "function", "function": {"name": "noop", "description": "", "parameters": {}}}]

CALLS = [{"role": "user", "content": "Weather in Paris?"},
         {"role": "assistant", "content": "", "tool_calls": [
             {"type": "function", "id": "call00001", "function": {
                 "name": "get_weather", "arguments": {"city": "Paris", "days": 3, "ratio": 0.5,
                                                      "none": None, "list": [1, "zwei"]}}}]},
         {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "{\"t\": 21.5}"},
         {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "sunny"},
         {"role": "assistant", "content": "It is 21.5 degrees."},
         {"role": "user", "content": "Thanks!"}]

CASES = {
    "one": {"messages": [{"role": "user", "content": "Hello!"}]},
    "system": {"messages": [{"role": "system", "content": "  Be brief. \n"},
                            {"role": "user", "content": "Why is the sky blue?"}]},
    "turns": {"messages": [{"role": "user", "content": " 1+1? "},
                           {"role": "assistant", "content": "<think>\nEasy.\n</think>\n\n2"},
                           {"role": "user", "content": "Sure?\nReally? 你好 🙂"},
                           {"role": "assistant", "content": "Yes.  "}],
              "add_generation_prompt": False},
    "think": {"messages": [{"role": "user", "content": "a"},
                           {"role": "assistant", "content": "b", "reasoning_content": "hm"},
                           {"role": "user", "content": "c"}],
              "variables": {"enable_thinking": False, "reasoning_effort": "high"}},
    "tools": {"messages": CALLS, "tools": TOOLS},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Look "},
                                                        {"type": "image"},
                                                        {"type": "text", "text": "here"}]}]},
    "bad_roles": {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]},
    "empty": {"messages": []},
}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def render(template, case):
    variables = {**SPECIAL, "messages": case["messages"], "tools": case.get("tools"),
                 "add_generation_prompt": case.get("add_generation_prompt", True),
                 **case.get("variables", {})}
    try:
        return {"text": environment().from_string(template).render(**variables)}
    except Exception as error:  # what goes wrong in Jinja2 has to go wrong in Attune
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    answers = {}
    for path in sorted((HERE / "templates").glob("*.jinja")):
        template = path.read_bytes().decode()
        answers[path.stem] = {name: render(template, case) for name, case in CASES.items()}
    snippets = []
    for line in (HERE / "templates" / "snippets.txt").read_text().splitlines():
        if line and not line.startswith("##"):
            source = json.loads(line)
            snippets.append({"template": source, **render(source, CASES["tools"])})
    document = {"library": jinja2.__version__, "now": NOW, "special": SPECIAL, "cases": CASES,
                "answers": answers, "snippets": snippets}
    (HERE / "templates.json").write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n")


main()
