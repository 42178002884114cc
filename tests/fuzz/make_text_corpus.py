#!/usr/bin/env python3
"""Writes the seeds of the corpora `tokenizer` and `template`, from which the fuzzer goes on."""
import json
import pathlib

HERE = pathlib.Path(__file__).parent / "corpus"
DATA = pathlib.Path(__file__).parent.parent / "data" / "text"

VOCAB = {p: i for i, p in enumerate(["<unk>", "a", "b", "ab", "Ġ", "▁", "e", "the", "##b", "<0x0A>"])}
BPE = {"type": "BPE", "vocab": VOCAB, "merges": ["a b"], "unk_token": "<unk>"}
SPLIT = {"type": "Split", "pattern": {"Regex": r"\s+(?!\S)|[^\s\p{L}]+"}, "behavior": "Isolated",
         "invert": False}
TOKENIZERS = {
    "byte_level": {"model": BPE, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        SPLIT, {"type": "Digits", "individual_digits": True}, {"type": "ByteLevel"}]},
        "decoder": {"type": "ByteLevel"}},
    "fallback": {"model": {**BPE, "byte_fallback": True, "fuse_unk": True, "ignore_merges": True},
                 "normalizer": {"type": "Sequence", "normalizers": [
                     {"type": "Prepend", "prepend": "▁"},
                     {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
                 "decoder": {"type": "Sequence", "decoders": [
                     {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                     {"type": "ByteFallback"}, {"type": "Fuse"},
                     {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}},
    "suffix": {"model": {**BPE, "end_of_word_suffix": "</w>", "continuing_subword_prefix": "##"},
               "decoder": {"type": "BPEDecoder", "suffix": "</w>"}},
    "unigram": {"model": {"type": "Unigram", "unk_id": 0, "byte_fallback": True,
                          "vocab": [["<unk>", 0], ["a", -1.5], ["ab", -2], ["▁", -3]]},
                "normalizer": {"type": "Precompiled", "precompiled_charsmap": "CAAAAAABAAAACgAAAAA="},
                "pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "first", "split": False},
                "decoder": {"type": "Metaspace", "replacement": "▁"}},
    "word_piece": {"model": {"type": "WordPiece", "vocab": {**VOCAB, "[UNK]": 10},
                             "max_input_chars_per_word": 100},
                   "normalizer": {"type": "BertNormalizer", "lowercase": True},
                   "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece"},
                   "post_processor": {"type": "BertProcessing", "sep": ["b", 2], "cls": ["a", 1]}},
    "word_level": {"model": {"type": "WordLevel", "vocab": VOCAB, "unk_token": "<unk>"},
                   "normalizer": {"type": "Sequence", "normalizers": [
                       {"type": t} for t in ("NFKD", "StripAccents", "Nmt", "Strip", "Lowercase")]},
                   "pre_tokenizer": {"type": "Whitespace"}},
    "added": {"model": BPE, "added_tokens": [
        {"id": 20, "content": "the", "single_word": True, "lstrip": True, "rstrip": True,
         "normalized": True, "special": False},
        {"id": 21, "content": "<s>", "special": True}],
        "post_processor": {"type": "TemplateProcessing",
                           "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                      {"Sequence": {"id": "A", "type_id": 0}}],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [21], "tokens": ["<s>"]}}},
        "bos_token": "<s>", "chat_template": [{"name": "default", "template": "x"}]},
    "bad_regex": {"model": BPE, "pre_tokenizer": {**SPLIT, "pattern": {"Regex": "(a+)+$"}}},
    "bad_id": {"model": {**BPE, "vocab": {"a": 4294967295}}},
}


def main():
    for folder in ("tokenizer", "template"):
        (HERE / folder).mkdir(parents=True, exist_ok=True)
    for name, document in TOKENIZERS.items():
        (HERE / "tokenizer" / name).write_text(json.dumps(document, ensure_ascii=False))
    lines = (DATA / "templates" / "snippets.txt").read_text().splitlines()
    sources = [json.loads(line) for line in lines if line and not line.startswith("##")]
    # Seeds of moderate length; the fuzzer joins and cuts them.
    for i in range(0, len(sources), 6):
        (HERE / "template" / f"snippets_{i // 6:02}").write_text("\n".join(sources[i:i + 6]))
    for path in sorted((DATA / "templates").glob("*.jinja")):
        (HERE / "template" / path.stem).write_bytes(path.read_bytes())


main()
