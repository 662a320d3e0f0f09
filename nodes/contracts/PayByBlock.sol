// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

interface Token {
    function transfer(address to, uint256 amount) external returns (bool);
}

/// Pays an amount that depends on the block: the same transaction, mined again in another block, pays another amount.
///
/// Pays from its own balance: give it tokens first.
contract PayByBlock {
    /// Sends 1000 + block.number base units: 1007 in block 7.
    function pay(Token token, address to) external {
        require(token.transfer(to, 1000 + block.number), "transfer");
    }
}
