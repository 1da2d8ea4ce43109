# npm installs a local package with a binary and a lifecycle script, without the network.
# needs: npm node
# timeout: 180
# names: (^|/)\.npm-cache(/|$)
# names: (^|/)npm-logs(/|$)
# output: in \d+(\.\d+)?m?s
# output: A complete log.*
export npm_config_cache=$PWD/.npm-cache npm_config_offline=true npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false
mkdir -p lib/bin app
echo '{"name":"small-lib","version":"1.0.0","main":"index.js","bin":{"small-lib":"bin/run.js"},"files":["index.js","bin"]}' > lib/package.json
echo 'module.exports = () => 42' > lib/index.js
printf '#!/usr/bin/env node\nconsole.log("bin", require("..")())\n' > lib/bin/run.js
(cd lib && npm pack --silent)
cd app
echo '{"name":"app","version":"1.0.0","scripts":{"test":"node t.js && small-lib","postinstall":"node -e \"require(\\\"fs\\\").writeFileSync(\\\"ran\\\",\\\"x\\\")\""}}' > package.json
echo 'console.log(require("small-lib")())' > t.js
npm install --silent ../lib/small-lib-1.0.0.tgz
npm test --silent
npm ci --silent
npm ls
npm uninstall --silent small-lib
cat package.json
