"""Writes the tokenizers and answers of this folder. Run with `tokenizers` 0.23, `sentencepiece` 0.2,
`protobuf` and, for --smollm2, `gguf`, all from PyPI.

Small tokenizers of every model kind are trained on the corpus, saved as tokenizer.json and asked for
the ids and the decoded text of each line; tests hold Attune to the answers. With --smollm2 GGUF and
--minilm tokenizer.json two real vocabularies are asked as well; of them the part is kept that the
corpus touches. Training is not repeatable to the bit: tokenizers and answers are written together.
"""
import argparse
import base64
import io
import json
import pathlib
import tempfile

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2 as model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers

HERE = pathlib.Path(__file__).parent
CORPUS = json.loads((HERE / "corpus.json").read_text())
TRAINING = [line for line in CORPUS if "\u0000" not in line] * 3

GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK_V3 = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
               r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""]
DEEPSEEK_CODER = ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+"]
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def isolated(*patterns):
    return [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]


def byte_level(use_regex=False, prefix=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)


def train_byte_level(pre_tokenizer, size=420, normalizer=None, **model):
    t = Tokenizer(models.BPE(**model))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizer
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(TRAINING, trainers.BpeTrainer(
        vocab_size=size, special_tokens=CONTROL, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def smollm():
    t = train_byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                  byte_level(use_regex=True)]), size=900)
    return t


def gpt2():
    t = train_byte_level(byte_level(use_regex=True, prefix=True))
    t.post_processor = processors.ByteLevel(trim_offsets=True)
    return t


def llama3():
    t = train_byte_level(pre_tokenizers.Sequence(isolated(LLAMA3) + [byte_level()]),
                         ignore_merges=True)
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="<|im_start|> $A",
                                      special_tokens=[("<|im_start|>", 1)])])
    return t


def qwen2():
    return train_byte_level(pre_tokenizers.Sequence(isolated(QWEN2) + [byte_level()]),
                            normalizer=normalizers.NFC())


def gpt4o():
    return train_byte_level(pre_tokenizers.Sequence(isolated(GPT4O) + [byte_level()]))


def tekken():
    return train_byte_level(pre_tokenizers.Sequence(isolated(TEKKEN) + [byte_level()]),
                            ignore_merges=True)


def deepseek_v3():
    return train_byte_level(pre_tokenizers.Sequence(isolated(*DEEPSEEK_V3) + [byte_level()]))


def deepseek_coder():
    return train_byte_level(pre_tokenizers.Sequence(
        isolated(*DEEPSEEK_CODER) + [pre_tokenizers.Digits(individual_digits=True), byte_level()]))


def falcon():
    return train_byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation(behavior="contiguous"), byte_level(use_regex=True),
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]))


def llama():
    """BPE with byte fallback, spaces as marks through the normaliser."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    latin = [line for line in TRAINING if all(ord(c) < 0x250 or c == "▁" for c in line)]
    t.train_from_iterator(latin, trainers.BpeTrainer(vocab_size=700, special_tokens=specials,
                                                     max_token_length=12, show_progress=False))
    doc = json.loads(t.to_str())
    doc["added_tokens"] = doc["added_tokens"][:3]  # byte tokens belong to the model alone
    t = Tokenizer.from_str(json.dumps(doc))
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                   decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return t


def metaspace_first():
    t = llama()
    t.normalizer = normalizers.Sequence([])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return t


def unigram(byte_fallback=False):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(),
                                         normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    t.decoder = decoders.Metaspace(prepend_scheme="always")
    latin = [line for line in TRAINING if all(ord(c) < 0x600 for c in line)]
    t.train_from_iterator(latin, trainers.UnigramTrainer(
        vocab_size=600, unk_token="<unk>", special_tokens=["<unk>", "<s>", "</s>"],
        show_progress=False))
    t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    return t


def word_piece():
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(TRAINING, trainers.WordPieceTrainer(
        vocab_size=900, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        show_progress=False))
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return t


def word_level():
    t = Tokenizer(models.WordLevel(unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(),
                                         normalizers.Lowercase(), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.train_from_iterator(TRAINING, trainers.WordLevelTrainer(
        vocab_size=400, special_tokens=["<unk>"], show_progress=False))
    return t


def added_tokens():
    """Every option of an added token."""
    t = train_byte_level(byte_level(use_regex=True), size=330, normalizer=normalizers.Lowercase())
    t.add_tokens([AddedToken("the", single_word=True), AddedToken("Fox", normalized=True),
                  AddedToken("world", lstrip=True), AddedToken("lazy", rstrip=True, normalized=False),
                  AddedToken("世界"), AddedToken("aaa"), AddedToken("aaaaa", normalized=False)])
    t.add_special_tokens([AddedToken("<pad>", lstrip=True, rstrip=True), "</s>"])
    return t


def suffix_bpe():
    """The older BPE: words end in </w>, no bytes."""
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    t.decoder = decoders.BPEDecoder()
    t.train_from_iterator(TRAINING[:20], trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False))
    return t


def splits():
    """Each way to treat a delimiter, one after the other."""
    t = train_byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex("[,;]"), "merged_with_previous"),
        pre_tokenizers.Split("(", "merged_with_next"),
        pre_tokenizers.Split(Regex(r"-+"), "contiguous"),
        pre_tokenizers.Split(Regex(r"\w+|[^\w\s]+"), "removed", invert=True),
        pre_tokenizers.Split(Regex(r"\p{Han}"), "isolated"),
        byte_level()]), size=300)
    return t


SMALL = [smollm, gpt2, llama3, qwen2, gpt4o, tekken, deepseek_v3, deepseek_coder, falcon, llama,
         metaspace_first, unigram, word_piece, word_level, added_tokens, suffix_bpe, splits]


def train_sentencepiece(kind, **options):
    """A .model file; its normalisation rules are few, so that it stays small."""
    rules = [("ﬁ", "fi"), ("ﬂ", "fl"), ("㎏", "kg"), ("№", "No"), ("e\u0301", "é"), ("\u00a0", " "),
             ("\u3000", " "), ("\t", " "), ("²", "2"), ("\u200b", "")]
    with tempfile.TemporaryDirectory() as folder:
        tsv = pathlib.Path(folder, "rules.tsv")
        tsv.write_text("".join(" ".join(f"{ord(c):x}" for c in a) + "\t" +
                               " ".join(f"{ord(c):x}" for c in b) + "\n" for a, b in rules))
        text = pathlib.Path(folder, "text")
        text.write_text("\n".join(line.replace("\n", " ") for line in TRAINING if max(line, default="a") < "\u0600"))
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_writer=out, model_type=kind, minloglevel=2,
            normalization_rule_tsv=str(tsv), num_threads=1, **options)
        return out.getvalue()


def spm_bpe():
    return train_sentencepiece("bpe", vocab_size=600, byte_fallback=True, character_coverage=0.99,
                               split_digits=True, remove_extra_whitespaces=False,
                               allow_whitespace_only_pieces=True, user_defined_symbols=["<|sep|>"])


def spm_unigram():
    return train_sentencepiece("unigram", vocab_size=330, bos_id=-1, pad_id=0, eos_id=1, unk_id=2)


def spm_answers(model, before, after):
    sp = sentencepiece.SentencePieceProcessor(model_proto=model)
    out = []
    for line in CORPUS:
        bare = sp.encode(line)
        ids = before + bare + after
        out.append({"ids": ids, "bare": bare, "decoded": sp.decode(bare)})
    return out


def spm_to_hf(model):
    """The fast tokenizer of a Unigram model, as transformers' converter builds it for T5."""
    proto = model_pb2.ModelProto.FromString(model)
    t = Tokenizer(models.Unigram([(p.piece, p.score) for p in proto.pieces], unk_id=2))
    t.normalizer = normalizers.Sequence([
        normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap),
        normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    t.decoder = decoders.Metaspace(prepend_scheme="always")
    t.add_special_tokens(["<pad>", "</s>", "<unk>"])
    t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return t


def gguf_of_spm(model):
    """What a GGUF file holds of the model."""
    proto = model_pb2.ModelProto.FromString(model)
    return {"tokens": [p.piece for p in proto.pieces], "scores": [p.score for p in proto.pieces],
            "token_type": [p.type for p in proto.pieces],
            "precompiled_charsmap": base64.b64encode(
                proto.normalizer_spec.precompiled_charsmap).decode()}


def answers(tokenizer, lines):
    out = []
    for line in lines:
        ids = tokenizer.encode(line).ids
        bare = tokenizer.encode(line, add_special_tokens=False).ids
        row = {"ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=True)}
        full = tokenizer.decode(ids, skip_special_tokens=False)
        if bare != ids:
            row["bare"] = bare
        if full != row["text"]:
            row["full_text"] = full
        out.append(row)
    return out


def write(name, value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    (HERE / name).write_text(text.replace('{"ids"', '\n{"ids"') + "\n")


def smollm2_from_gguf(path):
    import gguf
    fields = gguf.GGUFReader(path).fields
    get = lambda key: fields[key].contents()
    tokens, types = get("tokenizer.ggml.tokens"), get("tokenizer.ggml.token_type")
    merges = [tuple(m.split(" ")) for m in get("tokenizer.ggml.merges")]
    t = Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(tokens)}, merges=merges))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               byte_level(use_regex=True)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([p for p, kind in zip(tokens, types) if kind == 3])
    return t


def reduced_bpe(tokenizer):
    """The part of a byte-level vocabulary that the corpus touches, ids and order of merges kept."""
    doc = json.loads(tokenizer.to_str())
    vocab, merges = doc["model"]["vocab"], [tuple(m) for m in doc["model"]["merges"]]
    ranks = {pair: i for i, pair in enumerate(merges)}
    used = set()
    for line in CORPUS:
        for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(line):
            parts = list(word)
            while True:
                pairs = [(ranks[p], i) for i, p in enumerate(zip(parts, parts[1:])) if p in ranks]
                used.update(rank for rank, _ in pairs)
                if not pairs:
                    break
                i = min(pairs)[1]
                parts[i:i + 2] = [parts[i] + parts[i + 1]]
    doc["model"]["merges"] = [merges[i] for i in sorted(used)]
    keep = {p for pair in doc["model"]["merges"] for p in (*pair, "".join(pair))}
    keep |= {p for p in vocab if len(p) == 1} | {t["content"] for t in doc["added_tokens"]}
    doc["model"]["vocab"] = {p: i for p, i in vocab.items() if p in keep}
    return doc


def reduced_word_piece(tokenizer):
    """The pieces of a WordPiece vocabulary that occur somewhere in the corpus."""
    doc = json.loads(tokenizer.to_str())
    words = {w for line in CORPUS for w, _ in tokenizer.pre_tokenizer.pre_tokenize_str(
        tokenizer.normalizer.normalize_str(line))}
    keep = {w[i:j] for w in words for i in range(len(w)) for j in range(i + 1, min(len(w), i + 30) + 1)}
    special = {t["content"] for t in doc["added_tokens"]}
    doc["model"]["vocab"] = {p: i for p, i in doc["model"]["vocab"].items()
                             if p.removeprefix("##") in keep or p in special}
    doc["padding"] = doc["truncation"] = None
    return doc


def write_reduced(name, doc, full):
    text = json.dumps(doc, ensure_ascii=False, separators=(",", ":"))
    reduced = Tokenizer.from_str(text)
    assert all(reduced.encode(line).ids == full.encode(line).ids for line in CORPUS)
    (HERE / f"{name}.tokenizer.json").write_text(text + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--smollm2")
    parser.add_argument("--minilm")
    args = parser.parse_args()
    for make in SMALL:
        t = make()
        name = make.__name__
        doc = json.loads(t.to_str())
        (HERE / f"{name}.tokenizer.json").write_text(
            json.dumps(doc, ensure_ascii=False, separators=(",", ":")) + "\n")
        write(f"{name}.answers.json", {"library": tokenizers.__version__,
                                       "lines": answers(t, CORPUS)})
    for make, frame in ((spm_bpe, ([1], [])), (spm_unigram, ([], [1]))):
        model = make()
        name = make.__name__
        (HERE / f"{name}.model").write_bytes(model)
        write(f"{name}.answers.json", {"library": sentencepiece.__version__,
                                       "gguf": gguf_of_spm(model),
                                       "lines": spm_answers(model, *frame)})
    t = spm_to_hf((HERE / "spm_unigram.model").read_bytes())
    (HERE / "spm_unigram.tokenizer.json").write_text(t.to_str() + "\n")
    write("spm_unigram_hf.answers.json", {"library": tokenizers.__version__,
                                          "lines": answers(t, CORPUS)})
    if args.smollm2:
        t = smollm2_from_gguf(args.smollm2)
        write_reduced("smollm2", reduced_bpe(t), t)
        write("smollm2.answers.json", {"library": tokenizers.__version__,
                                       "lines": answers(t, CORPUS)})
    if args.minilm:
        t = Tokenizer.from_file(args.minilm)
        t.no_truncation()
        t.no_padding()
        write_reduced("minilm", reduced_word_piece(t), t)
        write("minilm.answers.json", {"library": tokenizers.__version__,
                                      "lines": answers(t, CORPUS)})


main()
