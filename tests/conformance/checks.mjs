// Prints what the conformance suite wrote into a folder, a check a line: scenario, check, status and message between tabs.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const [, , folder] = process.argv;

const flat = text => String(text ?? '').replace(/\s+/g, ' ').trim();

for (const name of readdirSync(folder).sort()) {
    // `server-SCENARIO-TIME`, the time with a `T` and a `Z`.
    const [, scenario] = /^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$/.exec(name);
    for (const check of JSON.parse(readFileSync(join(folder, name, 'checks.json'), 'utf8'))) {
        console.log([scenario, check.id, check.status, flat(check.errorMessage)].join('\t'));
    }
}
