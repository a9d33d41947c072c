/* Contains Preact, (c) 2015-present Jason Miller, MIT License: https://github.com/preactjs/preact */
"use strict";(()=>{})();
