// A server that has what the conformance suite asks for by name, on the official SDK: in revisions with sessions and in the
// one without. It says its port in one line of JSON and ends with its standard input.

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
                logging: {},
                // What the gate shows is what was pinned, and stays.
                prompts: { listChanged: false },
                resources: { listChanged: false, subscribe: true },
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
    if (await isLegacyRequest(await toWebRequest(request, body), body)) {
        await answerInSession(request, response, body);
    } else {
        await answerStateless(request, response, body);
    }
});

listener.listen(0, '127.0.0.1', () => console.log(JSON.stringify({ port: listener.address().port })));
process.stdin.resume().on('end', () => process.exit());
