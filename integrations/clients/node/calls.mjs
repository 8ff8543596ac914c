// Makes the calls that a test asks for, through the real packages, one after another.
//
// Standard input: {"client": "openai" | "CohereClient" | "CohereClientV2", "options": {…}, "calls": [{"method": "embeddings.create",
// "args": […]}]}. Standard output: for each call {"value": …} or {"error": {"name", "status", "code", "message"}}. A list that a
// method answers page by page comes whole.
import { readFileSync } from "node:fs";
import OpenAI from "openai";
import { CohereClient, CohereClientV2 } from "cohere-ai";

const { client, options, calls } = JSON.parse(readFileSync(0, "utf8"));
const made = new { openai: OpenAI, CohereClient, CohereClientV2 }[client](options);
const out = [];
for (const { method, args } of calls) {
  const path = method.split(".");
  const name = path.pop();
  const owner = path.reduce((object, member) => object[member], made);
  try {
    const value = await owner[name](...args);
    out.push({ value: value && Symbol.asyncIterator in value ? await Array.fromAsync?.(value) ?? value.data : value });
  } catch (error) {
    out.push({
      error: { name: error.constructor.name, status: error.status ?? error.statusCode ?? null, code: error.code ?? null, message: error.message },
    });
  }
}
console.log(JSON.stringify(out));
