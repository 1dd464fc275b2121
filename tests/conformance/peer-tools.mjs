// The tools that answer by themselves.

import { setTimeout as pause } from 'node:timers/promises';

import { fromJsonSchema } from '@modelcontextprotocol/server';

import { object, PNG, said, WAV } from './peer-contents.mjs';

/** Between two notices, so that they are seen one by one. */
const BEAT_MS = 50;

const IMAGE = { type: 'image', data: PNG, mimeType: 'image/png' };

/** What a schema of the draft 2020-12 can say, each part once. */
const RICH_SCHEMA = {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    $defs: {
        address: {
            $anchor: 'addressDef',
            type: 'object',
            properties: { street: { type: 'string' }, city: { type: 'string' } }
        }
    },
    properties: {
        name: { type: 'string' },
        address: { $ref: '#/$defs/address' },
        contactMethod: { type: 'string', enum: ['phone', 'email'] },
        phone: { type: 'string' },
        email: { type: 'string' }
    },
    allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
    if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
    then: { required: ['phone'] },
    else: { required: ['email'] },
    additionalProperties: false
};

export function registerTools(server) {
    const tool = (name, description, answer, schema = object()) =>
        server.registerTool(name, { description, inputSchema: fromJsonSchema(schema) }, answer);

    tool('test_simple_text', 'Says a sentence.', () => said('This is a simple text response for testing.'));
    tool('test_image_content', 'Shows a red point.', () => ({ content: [IMAGE] }));
    tool('test_audio_content', 'Plays silence.', () => ({ content: [{ type: 'audio', data: WAV, mimeType: 'audio/wav' }] }));
    tool('test_embedded_resource', 'Encloses a resource.', () => ({
        content: [enclosed('test://embedded-resource', 'text/plain', 'This is an embedded resource content.')]
    }));
    tool('test_multiple_content_types', 'Gives a text, an image and a resource.', () => ({
        content: [
            { type: 'text', text: 'Multiple content types test:' },
            IMAGE,
            enclosed('test://mixed-content-resource', 'application/json', JSON.stringify({ test: 'data', value: 123 }))
        ]
    }));
    tool('test_error_handling', 'Fails.', () => {
        throw new Error('This tool intentionally returns an error for testing');
    });
    tool('test_tool_with_logging', 'Says in its log how far it is.', async (_, { mcpReq }) => {
        await mcpReq.log('info', 'Tool execution started');
        await pause(BEAT_MS);
        await mcpReq.log('info', 'Tool processing data');
        await pause(BEAT_MS);
        await mcpReq.log('info', 'Tool execution completed');
        return said('Done.');
    });
    tool('test_logging_tool', 'Writes to its log.', async (_, { mcpReq }) => {
        await mcpReq.log('info', 'A line of the log');
        return said('Logged.');
    });
    tool('test_tool_with_progress', 'Says how far it is.', async (_, { mcpReq }) => {
        const progressToken = mcpReq._meta?.progressToken;
        for (const progress of [0, 50, 100]) {
            if (progressToken !== undefined) {
                await mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: 100 } });
            }
            await pause(BEAT_MS);
        }
        return said('Done.');
    });
    tool('json_schema_2020_12_tool', 'Takes what a rich schema says.', () => said('Taken.'), RICH_SCHEMA);
    tool(
        'test_custom_header',
        'Takes an argument that a header repeats.',
        ({ region }) => said(`In ${region}.`),
        object({ region: { type: 'string', 'x-mcp-header': 'Region' } })
    );
}

function enclosed(uri, mimeType, text) {
    return { type: 'resource', resource: { uri, mimeType, text } };
}
