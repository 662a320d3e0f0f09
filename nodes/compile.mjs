// Compiles contracts/*.sol and writes contracts/*.json beside them, the same bytes each time.
//
// Promises: one artifact per source, named after the contract; no metadata hash in the bytecode, so that paths and
// comments do not change it; with --check nothing is written and any drift ends with 1.
// Deliberately not: imports, libraries, more than one artifact per file.
//
//   npm ci && npm run contracts        write the artifacts
//   node nodes/compile.mjs --check     fail when a committed artifact is not what its source compiles to

import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const CONTRACTS = join(dirname(fileURLToPath(import.meta.url)), 'contracts')
const SETTINGS = {
  evmVersion: 'cancun',
  optimizer: { enabled: true, runs: 200 },
  metadata: { appendCBOR: false, bytecodeHash: 'none' },
}

const flags = process.argv.slice(2)
if (flags.some((flag) => flag !== '--check')) {
  console.error('usage: node nodes/compile.mjs [--check]')
  process.exit(2)
}

const solc = await loadSolc()
const wanted = artifacts(sources())
process.exitCode = flags.includes('--check') ? check(wanted) : write(wanted)

async function loadSolc() {
  try {
    return (await import('solc')).default
  } catch (error) {
    console.error(`contracts: solc is not installed, run \`npm ci\` in nodes/ first (${error.code})`)
    process.exit(1)
  }
}

function sources() {
  const names = readdirSync(CONTRACTS).filter((name) => name.endsWith('.sol'))
  return Object.fromEntries(names.sort().map((name) => [name, { content: readFileSync(join(CONTRACTS, name), 'utf8') }]))
}

/** Compiles all sources and returns file name -> content of its artifact. */
function artifacts(sources) {
  const outputSelection = { '*': { '*': ['abi', 'evm.bytecode.object', 'evm.deployedBytecode.object'] } }
  const input = { language: 'Solidity', sources, settings: { ...SETTINGS, outputSelection } }
  const output = JSON.parse(solc.compile(JSON.stringify(input)))
  if (output.errors?.length) {
    for (const error of output.errors) console.error(error.formattedMessage)
    process.exit(1)
  }
  return Object.fromEntries(
    Object.keys(sources).map((source) => {
      const contract = source.replace(/\.sol$/, '')
      return [`${contract}.json`, artifact(contract, output.contracts[source][contract])]
    }),
  )
}

function artifact(contract, { abi, evm }) {
  const fields = {
    contract,
    compiler: solc.version(),
    settings: SETTINGS,
    abi,
    runtime: `0x${evm.deployedBytecode.object}`,
    creation: `0x${evm.bytecode.object}`,
  }
  return `${JSON.stringify(fields, null, 2)}\n`
}

function write(wanted) {
  for (const [name, content] of Object.entries(wanted)) writeFileSync(join(CONTRACTS, name), content)
  console.log(`contracts: ${Object.keys(wanted).length} written`)
  return 0
}

function check(wanted) {
  const found = readdirSync(CONTRACTS).filter((name) => name.endsWith('.json'))
  const orphans = found.filter((name) => !(name in wanted))
  const drifted = Object.keys(wanted).filter((name) => {
    const path = join(CONTRACTS, name)
    return !existsSync(path) || readFileSync(path, 'utf8') !== wanted[name]
  })
  for (const name of orphans) console.error(`contracts: ${name} has no source`)
  for (const name of drifted) console.error(`contracts: ${name} is not what its source compiles to, run \`npm run contracts\` in nodes/`)
  if (orphans.length + drifted.length > 0) return 1
  console.log(`contracts: ${Object.keys(wanted).length} match their sources`)
  return 0
}
