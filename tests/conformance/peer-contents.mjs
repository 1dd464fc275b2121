// The smallest contents of each kind, made here.

import { deflateSync, crc32 } from 'node:zlib';

/** A text as the only block of a result. */
export function said(text) {
    return { content: [{ type: 'text', text }] };
}

/** A schema of an object with these members, all of them required. */
export function object(properties = {}) {
    return { type: 'object', properties, required: Object.keys(properties) };
}

/** A red point. */
export const PNG = png().toString('base64');

/** One sample of silence. */
export const WAV = wav().toString('base64');

function png() {
    const head = Buffer.alloc(13);
    head.writeUInt32BE(1, 0);
    head.writeUInt32BE(1, 4);
    head.set([8, 2, 0, 0, 0], 8);
    const point = deflateSync(Buffer.from([0, 255, 0, 0]));
    const signature = Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]);
    return Buffer.concat([signature, chunk('IHDR', head), chunk('IDAT', point), chunk('IEND', Buffer.alloc(0))]);
}

function chunk(name, data) {
    const named = Buffer.concat([Buffer.from(name, 'ascii'), data]);
    const framed = Buffer.alloc(named.length + 8);
    framed.writeUInt32BE(data.length, 0);
    framed.set(named, 4);
    framed.writeUInt32BE(crc32(named), named.length + 4);
    return framed;
}

function wav() {
    const file = Buffer.alloc(46);
    file.write('RIFF', 0, 'ascii');
    file.writeUInt32LE(38, 4);
    file.write('WAVEfmt ', 8, 'ascii');
    file.writeUInt32LE(16, 16);
    file.writeUInt16LE(1, 20);
    file.writeUInt16LE(1, 22);
    file.writeUInt32LE(8000, 24);
    file.writeUInt32LE(16000, 28);
    file.writeUInt16LE(2, 32);
    file.writeUInt16LE(16, 34);
    file.write('data', 36, 'ascii');
    file.writeUInt32LE(2, 40);
    return file;
}
