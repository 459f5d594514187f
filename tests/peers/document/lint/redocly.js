// Redocly's rules over openapi.json, as its command line would run them: that brings along a renderer of React, and
// asks for news of itself.
import { formatProblems, getTotals, lint, loadConfig } from "@redocly/openapi-core";

const config = await loadConfig({ configPath: "redocly.yaml" });
const problems = await lint({ ref: "openapi.json", config });
const totals = getTotals(problems);
formatProblems(problems, { format: "stylish", totals, maxProblems: 1000 });
console.log(`redocly: ${totals.errors} errors, ${totals.warnings} warnings`);
process.exitCode = problems.length > 0 ? 1 : 0;
