// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

interface Token {
    function transfer(address to, uint256 amount) external returns (bool);
}

/// Pays in even blocks and reverts in odd ones: the same transaction, mined again one block later, pays nothing.
///
/// Pays from its own balance: give it tokens first.
contract RevertOnOddBlock {
    function pay(Token token, address to, uint256 amount) external {
        require(block.number % 2 == 0, "odd block");
        require(token.transfer(to, amount), "transfer");
    }
}
