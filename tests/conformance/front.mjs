// What the conformance suite speaks to in the place of the gate: it starts the gate, adds the token, which the suite cannot show,
// and hands through everything else as it is, `Host` and `Origin` too. It says its port in one line of JSON and ends with its
// standard input, and the gate with it.
//
// node front.mjs CONFIG PORTCULLIS WORD…: in CONFIG `FRONT` becomes its own address.

import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { createInterface } from 'node:readline';

const [, , config, portcullis, ...words] = process.argv;

let gate;

const front = createServer((asked, answer) => {
    const headers = [...asked.rawHeaders, 'Authorization', `Bearer ${gate.token}`];
    const onward = request(gate.url, { agent: false, path: asked.url, method: asked.method, headers }, answered => {
        answer.writeHead(answered.statusCode, answered.rawHeaders);
        answered.pipe(answer);
    });
    const end = () => {
        onward.destroy();
        answer.destroy();
    };
    onward.on('error', end);
    answer.on('close', () => onward.destroy());
    asked.pipe(onward);
});

front.listen(0, '127.0.0.1', async () => {
    const { port } = front.address();
    const text = readFileSync(config, 'utf8').replaceAll('FRONT', `127.0.0.1:${port}`);
    writeFileSync(config, text);
    gate = await started();
    console.log(JSON.stringify({ port }));
});

/** The gate's address and token, once it says that it listens. */
async function started() {
    const child = spawn(portcullis, words, { stdio: ['ignore', 'ignore', 'pipe'] });
    child.on('exit', code => process.exit(code ?? 1));
    process.stdin.resume().on('end', () => child.kill('SIGTERM'));
    const lines = createInterface({ input: child.stderr });
    const told = await new Promise(listens => {
        lines.on('line', line => (line.includes('"url"') ? listens(JSON.parse(line)) : console.error(line)));
    });
    return { url: told.url, token: readFileSync(told.token_file, 'utf8').trim() };
}
