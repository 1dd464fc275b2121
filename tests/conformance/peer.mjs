// A server that has what the conformance suite asks for by name, on the official SDK: in revisions with sessions and in the
// one without. It says its port in one line of JSON and ends with its standard input.
//
// `node peer.mjs quiet` is the same server without what the gate lets no server do: it asks its client for nothing, and tells it
// nothing that the client did not ask for.

import { randomBytes, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';

import {
    hostHeaderValidation,
    NodeStreamableHTTPServerTransport,
    originValidation,
    toNodeHandler,
    toWebRequest
} from '@modelcontextprotocol/node';
import { createMcpHandler, createRequestStateCodec, isInitializeRequest, isLegacyRequest, McpServer } from '@modelcontextprotocol/server';

import { registerAsking } from './peer-asking.mjs';
import { registerPrompts } from './peer-prompts.mjs';
import { registerResources } from './peer-resources.mjs';
import { registerTools } from './peer-tools.mjs';

const QUIET = process.argv[2] === 'quiet';

/** What a client asks for to be told something later. */
const LATER = ['logging/setLevel', 'resources/subscribe', 'resources/unsubscribe', 'subscriptions/listen'];

const OFFERED = 'io.modelcontextprotocol/clientCapabilities';

const OWN_NAMES = ['localhost', '127.0.0.1'];

/** State that a client carries between rounds is signed, and good as long as this process. */
const states = createRequestStateCodec({ key: randomBytes(32) });

/** Sessions of the older revisions, by their ids. */
const sessions = new Map();

const stateless = createMcpHandler(() => served(), { legacy: 'reject' });
const answerStateless = toNodeHandler(stateless);

/** A server with everything, for one request or for one session. */
function served() {
    const server = new McpServer(
        { name: 'conformance-peer', version: '1.0.0' },
        {
            capabilities: {
                completions: {},
                ...(QUIET ? {} : { logging: {} }),
                // What the gate shows is what was pinned, and stays.
                prompts: { listChanged: false },
                resources: { listChanged: false, subscribe: !QUIET },
                tools: { listChanged: false }
            },
            requestState: { verify: states.verify }
        }
    );
    registerTools(server);
    registerAsking(server, states);
    registerResources(server);
    registerPrompts(server);
    return server;
}

async function answerInSession(request, response, body) {
    const known = sessions.get(request.headers['mcp-session-id']);
    if (known) {
        await known.handleRequest(request, response, body);
        return;
    }
    if (request.headers['mcp-session-id'] || !isInitializeRequest(body)) {
        const status = request.headers['mcp-session-id'] ? 404 : 400;
        response.writeHead(status, { 'content-type': 'application/json' });
        response.end('{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no such session"}}');
        return;
    }
    const transport = new NodeStreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: id => sessions.set(id, transport),
        onsessionclosed: id => sessions.delete(id)
    });
    await served().connect(transport);
    await transport.handleRequest(request, response, body);
}

/** Takes out what a client offers, and its answers to what it was not asked. */
function hearNoOffers({ method, params = {} }) {
    if (method === 'initialize') {
        params.capabilities = {};
    }
    if (params._meta?.[OFFERED]) {
        params._meta[OFFERED] = {};
    }
    delete params.inputResponses;
    delete params.requestState;
}

async function read(request) {
    const parts = [];
    for await (const part of request) {
        parts.push(part);
    }
    try {
        return JSON.parse(Buffer.concat(parts).toString('utf8'));
    } catch {
        return undefined;
    }
}

const isOwnHost = hostHeaderValidation(OWN_NAMES);
const isOwnOrigin = originValidation(OWN_NAMES);

const listener = createServer(async (request, response) => {
    if (!isOwnHost(request, response) || !isOwnOrigin(request, response)) {
        return;
    }
    if (new URL(request.url, 'http://localhost').pathname !== '/mcp') {
        response.writeHead(404).end();
        return;
    }
    const body = request.method === 'POST' ? await read(request) : undefined;
    const inSession = await isLegacyRequest(await toWebRequest(request, body), body);
    if (QUIET && LATER.includes(body?.method)) {
        response.writeHead(inSession ? 200 : 404, { 'content-type': 'application/json' });
        const error = { code: -32601, message: 'Method not found' };
        response.end(JSON.stringify({ jsonrpc: '2.0', id: body.id, error }));
        return;
    }
    if (QUIET && body) {
        hearNoOffers(body);
    }
    await (inSession ? answerInSession : answerStateless)(request, response, body);
});

listener.listen(0, '127.0.0.1', () => console.log(JSON.stringify({ port: listener.address().port })));
process.stdin.resume().on('end', () => process.exit());
