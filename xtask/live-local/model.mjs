// Writes a tiny llama model as GGUF: random weights, a vocabulary of bytes, two layers. The same seed gives the same file.
import {writeFileSync} from "node:fs";

const EMBED = 64, HEADS = 4, LAYERS = 2, HIDDEN = 128;
const U32 = 4, I32 = 5, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9;
const ALIGN = 32;

const bytes = (size, write) => { const buffer = Buffer.alloc(size); write(buffer); return buffer; };
const u32 = (n) => bytes(4, (b) => b.writeUInt32LE(n));
const u64 = (n) => bytes(8, (b) => b.writeBigUInt64LE(BigInt(n)));
const f32 = (n) => bytes(4, (b) => b.writeFloatLE(n));
const text = (s) => { const b = Buffer.from(s, "utf8"); return Buffer.concat([u64(b.length), b]); };
const list = (type, items) => Buffer.concat([u32(type), u64(items.length), ...items]);
const padded = (b) => Buffer.concat([b, Buffer.alloc((ALIGN - b.length % ALIGN) % ALIGN)]);

// Three tokens that steer, then one for each byte.
function vocabulary() {
    const tokens = ["<unk>", "<s>", "</s>"], types = [2, 3, 3];
    for (let byte = 0; byte < 256; byte++) {
        tokens.push(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
        types.push(6);
    }
    return {tokens, types, scores: tokens.map(() => 0)};
}

function metadata({tokens, types, scores}, context) {
    const entry = (key, type, value) => Buffer.concat([text(key), u32(type), value]);
    return [
        entry("general.architecture", STRING, text("llama")),
        entry("general.name", STRING, text("tiny, random")),
        entry("llama.context_length", U32, u32(context)),
        entry("llama.embedding_length", U32, u32(EMBED)),
        entry("llama.block_count", U32, u32(LAYERS)),
        entry("llama.feed_forward_length", U32, u32(HIDDEN)),
        entry("llama.attention.head_count", U32, u32(HEADS)),
        entry("llama.attention.head_count_kv", U32, u32(HEADS)),
        entry("llama.rope.dimension_count", U32, u32(EMBED / HEADS)),
        entry("llama.attention.layer_norm_rms_epsilon", F32, f32(1e-5)),
        entry("llama.vocab_size", U32, u32(tokens.length)),
        entry("tokenizer.ggml.model", STRING, text("llama")),
        entry("tokenizer.ggml.tokens", ARRAY, list(STRING, tokens.map(text))),
        entry("tokenizer.ggml.scores", ARRAY, list(F32, scores.map(f32))),
        entry("tokenizer.ggml.token_type", ARRAY, list(I32, types.map(u32))),
        entry("tokenizer.ggml.bos_token_id", U32, u32(1)),
        entry("tokenizer.ggml.eos_token_id", U32, u32(2)),
        entry("tokenizer.ggml.unknown_token_id", U32, u32(0)),
        entry("tokenizer.ggml.add_bos_token", BOOL, Buffer.from([1])),
        entry("tokenizer.ggml.add_space_prefix", BOOL, Buffer.from([0])),
    ];
}

function shapes(vocabularySize) {
    const noise = true, all = [["token_embd.weight", [EMBED, vocabularySize], noise]];
    for (let layer = 0; layer < LAYERS; layer++) {
        const add = (name, dims, random) => all.push([`blk.${layer}.${name}.weight`, dims, random]);
        add("attn_norm", [EMBED], false);
        for (const name of ["attn_q", "attn_k", "attn_v", "attn_output"]) add(name, [EMBED, EMBED], noise);
        add("ffn_norm", [EMBED], false);
        add("ffn_gate", [EMBED, HIDDEN], noise);
        add("ffn_up", [EMBED, HIDDEN], noise);
        add("ffn_down", [HIDDEN, EMBED], noise);
    }
    all.push(["output_norm.weight", [EMBED], false]);
    all.push(["output.weight", [EMBED, vocabularySize], noise]);
    return all;
}

// xorshift32: weights need no better one.
function generator(seed) {
    let state = seed;
    return () => {
        state ^= state << 13; state ^= state >>> 17; state ^= state << 5;
        return (state >>> 0) / 2 ** 32;
    };
}

export function writeModel(path, context) {
    const words = vocabulary(), random = generator(0x2545F491);
    const entries = metadata(words, context);
    const infos = [], data = [];
    let offset = 0;
    for (const [name, dims, noise] of shapes(words.tokens.length)) {
        infos.push(text(name), u32(dims.length), ...dims.map(u64), u32(0), u64(offset));
        const length = dims.reduce((a, b) => a * b, 1);
        const weights = Float32Array.from({length}, () => noise ? (random() - 0.5) * 0.2 : 1);
        const tensor = padded(Buffer.from(weights.buffer));
        data.push(tensor);
        offset += tensor.length;
    }
    const count = data.length;
    const head = [Buffer.from("GGUF"), u32(3), u64(count), u64(entries.length), ...entries, ...infos];
    writeFileSync(path, Buffer.concat([padded(Buffer.concat(head)), ...data]));
}
