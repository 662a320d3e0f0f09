// A Solana cluster of one's own, with real programs: surfpool, seen as a consistent chain. For the sandbox and the live tests.
//
//   node surfpool.mjs [--slot-ms N] [--keep]
//   node surfpool.mjs --check          only whether it runs here
//
// Prints {"url"} in one line of JSON when it listens: JSON-RPC by way of `surfpool/mended.mjs`, which says what it mends, with the
// two methods of `surfpool/bank.mjs` beside it, `landfall_ws`, which tells where surfpool takes subscriptions, and
// `landfall_leap` [SECONDS], behind which blocks are so much later. It ends when its standard input does, so with whoever
// started it, unless it is to be kept, and listens on this machine only.
// surfpool comes as a native module for Linux on x86-64 with glibc; elsewhere this ends with exit code 3 and says so.
import { createRequire } from "node:module";
import { parseArgs } from "node:util";
import { Bank } from "./surfpool/bank.mjs";
import { Mended } from "./surfpool/mended.mjs";

const PACKAGE = "@solana/surfpool-linux-x64-gnu";
const NOT_HERE = 3;
// It writes down what happened until it is read, and stands still after about a thousand slots in which nobody did.
const DRAIN_MS = 200;

function surfnet() {
  try {
    return createRequire(import.meta.url)(PACKAGE).Surfnet;
  } catch (error) {
    const { platform, arch } = process;
    const [why] = error.message.split("\n");
    console.error(`surfpool does not run here (${platform} ${arch}; it needs linux x64 with glibc, and npm ci): ${why}`);
    process.exit(NOT_HERE);
  }
}

const { values } = parseArgs({
  options: { check: { type: "boolean" }, keep: { type: "boolean" }, "slot-ms": { type: "string", default: "100" } },
});
const Surfnet = surfnet();
if (values.check) process.exit(0);
const slotTimeMs = Number(values["slot-ms"]);
const node = Surfnet.startWithConfig({ offline: true, blockProductionMode: "clock", slotTimeMs });
setInterval(() => node.drainEvents(), DRAIN_MS);

if (!values.keep) process.stdin.resume().on("end", () => process.exit(0));
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(0));

const mended = await Mended.before(node.rpcUrl, slotTimeMs);
const bank = new Bank(node, (method, params) => mended.ask(method, params));
mended.methods.landfall_mint = (_, params) => bank.mint(...params);
mended.methods.landfall_pay = (_, params) => bank.pay(...params);
mended.methods.landfall_ws = () => node.wsUrl;
mended.methods.landfall_leap = (_, [secs]) => mended.leap(secs);
const url = await mended.listen();
console.log(JSON.stringify({ url }));
