// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.26;

// OpenZeppelin Contracts, MIT licence.
import {ERC20TransferAuthorizationUpgradeable as ERC3009} from
    "@openzeppelin/contracts-upgradeable/token/ERC20/extensions/ERC20TransferAuthorizationUpgradeable.sol";

/// The test chains' USDC: a real ERC-20 with EIP-3009, whose runtime code stands at the network's own USDC address.
///
/// It has no constructor, no immutables and no initializer, so that `anvil_setCode` alone makes it complete. OpenZeppelin's
/// contracts for proxies are the ones that allow this.
/// It promises the events of ERC-20 and refuses what a balance or an allowance does not cover.
/// A nonce of EIP-3009 is a key of 24 bytes and a sequence of 8: of a new key only the sequence 0 is taken.
/// Anyone may mint: it must never be deployed where money is real.
contract Token is ERC3009 {
    /// At slot 0, where `anvil_setStorageAt` can put another name of at most 31 bytes: the test networks' USDC is named "USDC",
    /// and a wallet signs for the name. Nothing here writes it.
    string private given;

    function name() public view override returns (string memory) {
        return bytes(given).length == 0 ? "USD Coin" : given;
    }

    function symbol() public pure override returns (string memory) {
        return "USDC";
    }

    function decimals() public pure override returns (uint8) {
        return 6;
    }

    /// FiatToken has this function too; OpenZeppelin's EIP-3009 does not.
    function DOMAIN_SEPARATOR() external view returns (bytes32) {
        return _domainSeparatorV4();
    }

    /// FiatToken has this function too.
    function version() public pure returns (string memory) {
        return "2";
    }

    /// Makes money out of nothing, announced as ERC-20 wants it: a Transfer from the zero address.
    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }

    /// Several transfers in one transaction, in order; equal ones are allowed and each counts.
    function pay(address[] calldata to, uint256[] calldata amounts) external {
        require(to.length == amounts.length, "lengths");
        for (uint256 i = 0; i < to.length; i++) _transfer(msg.sender, to[i], amounts[i]);
    }

    // The domain of EIP-712, as real USDC has it.

    function _EIP712Name() internal view override returns (string memory) {
        return name();
    }

    function _EIP712Version() internal pure override returns (string memory) {
        return version();
    }
}
