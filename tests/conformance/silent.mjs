// What the conformance suite speaks to in the place of a server whose questions nobody lets through: of each message it takes out
// what a client offers a server, and hands on the rest. It says its port in one line of JSON and ends with its standard input.
//
// node silent.mjs PORT

import { createServer, request } from 'node:http';

const [, , port] = process.argv;

const OFFERED = 'io.modelcontextprotocol/clientCapabilities';

const silent = createServer(async (asked, answer) => {
    const parts = [];
    for await (const part of asked) {
        parts.push(part);
    }
    const body = withoutOffers(Buffer.concat(parts));
    const headers = { ...asked.headers, 'content-length': body.length };
    delete headers['transfer-encoding'];
    const onward = request({ agent: false, host: '127.0.0.1', port, path: asked.url, method: asked.method, headers }, answered => {
        answer.writeHead(answered.statusCode, answered.rawHeaders);
        answered.pipe(answer);
    });
    onward.on('error', () => answer.destroy());
    answer.on('close', () => onward.destroy());
    onward.end(body);
});

function withoutOffers(body) {
    let message;
    try {
        message = JSON.parse(body.toString('utf8'));
    } catch {
        return body;
    }
    const { capabilities, _meta } = message?.params ?? {};
    if (message?.method === 'initialize' && capabilities) {
        message.params.capabilities = {};
    }
    if (_meta?.[OFFERED]) {
        _meta[OFFERED] = {};
    }
    return Buffer.from(JSON.stringify(message));
}

silent.listen(0, '127.0.0.1', () => console.log(JSON.stringify({ port: silent.address().port })));
process.stdin.resume().on('end', () => process.exit());
