// Prints the code that the page shows for a request: `code.mjs BASE LANGUAGE INFO PATH VALUES`, the
// last and INFO as JSON, as the page has them.

import { languages } from "../../host/serve/src/protocol/page/code.js";
import { request } from "../../host/serve/src/protocol/page/request.js";

const [base, language, info, path, values] = process.argv.slice(2);
console.log(languages[language](base, request(JSON.parse(info), path, JSON.parse(values))));
