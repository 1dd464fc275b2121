// Prompts, and completion of their arguments.

import { fromJsonSchema } from '@modelcontextprotocol/server';

import { object, PNG } from './peer-contents.mjs';

const TEXT = { type: 'string' };

const CITIES = ['paris', 'park', 'party'];

export function registerPrompts(server) {
    const prompt = (name, description, schema, answer) =>
        server.registerPrompt(name, { description, argsSchema: schema && fromJsonSchema(schema) }, answer);
    const user = content => ({ role: 'user', content });
    const text = text => user({ type: 'text', text });

    prompt('test_simple_prompt', 'A sentence.', undefined, () => ({
        messages: [text('This is a simple prompt for testing.')]
    }));
    prompt('test_prompt_with_arguments', 'Repeats two arguments.', object({ arg1: TEXT, arg2: TEXT }), ({ arg1, arg2 }) => ({
        messages: [text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)]
    }));
    prompt('test_prompt_with_embedded_resource', 'Encloses a resource.', object({ resourceUri: TEXT }), ({ resourceUri }) => ({
        messages: [
            user({
                type: 'resource',
                resource: { uri: resourceUri, mimeType: 'text/plain', text: 'Embedded resource content for testing.' }
            }),
            text('Please process the embedded resource above.')
        ]
    }));
    prompt('test_prompt_with_image', 'Shows a red point.', undefined, () => ({
        messages: [user({ type: 'image', data: PNG, mimeType: 'image/png' }), text('Please analyze the image above.')]
    }));
    server.server.setRequestHandler('completion/complete', ({ params }) => {
        const values = CITIES.filter(city => city.startsWith(params.argument.value));
        return { completion: { values, total: values.length, hasMore: false } };
    });
}
