// A server that speaks chat completions as OpenAI does, in front of llama.cpp with a model of random weights.
//
// A request may carry two members of ours: `callable`, the functions that may be called, and `calls`, after how many results
// the model has words instead. It prints one line of JSON with its port, and keeps what it counted: `GET /usage`.
import {createServer} from "node:http";
import {getLlama, LlamaCompletion, LlamaGrammar} from "node-llama-cpp";
import {callOf, WORDS} from "./grammar.mjs";
import {writeModel} from "./model.mjs";

const [, , modelPath] = process.argv;
const CONTEXT = 32768, MAX_BODY = 4 * 1024 * 1024;

writeModel(modelPath, CONTEXT);
// Nothing is downloaded and nothing is compiled: the prebuilt library or none.
const llama = await getLlama({gpu: false, build: "never", progressLogs: false, logLevel: "error"});
const model = await llama.loadModel({modelPath, gpuLayers: 0});
const context = await model.createContext({contextSize: CONTEXT, threads: 1});
// One for all requests, so that what begins as the one before is not read again: its cache.
const sequence = context.getSequence();
const served = [];

// One text for the whole request: which one does not matter to random weights, its length does to who counts.
function prompt({messages, tools = []}) {
    const turns = messages.map(({role, content, tool_calls}) =>
        `<|${role}|>${content ?? ""}${tool_calls ? JSON.stringify(tool_calls) : ""}\n`);
    return `${tools.map((tool) => JSON.stringify(tool)).join("\n")}\n${turns.join("")}<|assistant|>`;
}

// What the model says, with what llama.cpp counted for it.
async function generate(request) {
    const functions = (request.tools ?? []).map((tool) => tool.function);
    const callable = functions.filter(({name}) => request.callable?.includes(name) ?? true);
    const results = request.messages.filter(({role}) => role === "tool").length;
    const calls = callable.length > 0 && results < (request.calls ?? 1);
    const grammar = new LlamaGrammar(llama, {grammar: calls ? callOf(callable) : WORDS});
    const tokens = model.tokenize(prompt(request));
    const before = sequence.tokenMeter.getState();
    const completion = new LlamaCompletion({contextSequence: sequence, autoDisposeSequence: false});
    const {response, metadata} = await completion.generateCompletionWithMeta(tokens, {
        grammar, maxTokens: request.max_tokens, temperature: 1, seed: (request.seed ?? 0) + results,
    });
    completion.dispose();
    const used = sequence.tokenMeter.diff(before);
    const usage = {
        prompt_tokens: tokens.length, completion_tokens: used.usedOutputTokens,
        total_tokens: tokens.length + used.usedOutputTokens,
        prompt_tokens_details: {cached_tokens: tokens.length - used.usedInputTokens},
    };
    return {text: response, cut: metadata.stopReason === "maxTokens", calls, usage};
}

function reply({text, cut, calls, usage}, id, name) {
    const message = {role: "assistant", content: calls && !cut ? null : text};
    if (calls && !cut) {
        const call = JSON.parse(text);
        const asked = {name: call.name, arguments: JSON.stringify(call.arguments)};
        message.tool_calls = [{id: `call_${id}`, type: "function", function: asked}];
    }
    const reason = cut ? "length" : calls ? "tool_calls" : "stop";
    const choice = {index: 0, message, finish_reason: reason};
    return {id: `chatcmpl-${id}`, object: "chat.completion", created: 0, model: name, choices: [choice], usage};
}

// The same as events: who calls first, arguments in pieces, the reason, and the counts last.
function* events(whole) {
    const [{message, finish_reason}] = whole.choices;
    const chunk = (delta, reason = null) => ({
        ...whole, object: "chat.completion.chunk", usage: null, choices: [{index: 0, delta, finish_reason: reason}],
    });
    yield chunk({role: "assistant", content: message.content});
    for (const [index, call] of (message.tool_calls ?? []).entries()) {
        yield chunk({tool_calls: [{...call, index, function: {name: call.function.name, arguments: ""}}]});
        for (const piece of call.function.arguments.match(/.{1,5}/gs) ?? []) {
            yield chunk({tool_calls: [{index, function: {arguments: piece}}]});
        }
    }
    yield chunk({}, finish_reason);
    yield {...whole, object: "chat.completion.chunk", choices: []};
}

async function body(incoming) {
    const pieces = [];
    let size = 0;
    for await (const piece of incoming) {
        size += piece.length;
        if (size > MAX_BODY) throw new Error("the request is too large");
        pieces.push(piece);
    }
    return JSON.parse(Buffer.concat(pieces).toString("utf8"));
}

async function complete(incoming, outgoing) {
    const request = await body(incoming);
    const generated = await generate(request);
    const whole = reply(generated, served.length, request.model);
    served.push(generated.usage);
    if (!request.stream) return answer(outgoing, 200, whole);
    outgoing.writeHead(200, {"content-type": "text/event-stream"});
    for (const event of events(whole)) outgoing.write(`data: ${JSON.stringify(event)}\n\n`);
    outgoing.end("data: [DONE]\n\n");
}

function answer(outgoing, status, value) {
    outgoing.writeHead(status, {"content-type": "application/json"});
    outgoing.end(JSON.stringify(value));
}

// The context is one: requests take turns.
let turn = Promise.resolve();

const server = createServer((incoming, outgoing) => {
    const failed = (error) => answer(outgoing, 500, {error: {message: String(error?.message ?? error)}});
    switch (`${incoming.method} ${incoming.url}`) {
        case "POST /v1/chat/completions":
            turn = turn.then(() => complete(incoming, outgoing)).catch(failed);
            break;
        case "GET /v1/models": answer(outgoing, 200, {object: "list", data: [{id: "tiny", object: "model"}]}); break;
        case "GET /usage": answer(outgoing, 200, served); break;
        default: answer(outgoing, 404, {error: {message: "there is nothing here"}});
    }
});
server.listen(0, "127.0.0.1", () => console.log(JSON.stringify({port: server.address().port})));
// Whoever started this holds its standard input: when that ends, so does this.
process.stdin.resume().on("end", () => process.exit(0));
