// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

interface Token {
    function transferFrom(address from, address to, uint256 amount) external returns (bool);
}

/// Moves value in the ways that a look at the transaction alone does not show: from within, from deep within, by a
/// frame that is undone, with borrowed code, and for somebody else.
contract Router {
    /// Pays all that came with the call.
    function pay(address payable to) external payable {
        send(to, msg.value);
    }

    /// Pays half of what came with the call, twice: two equal payments in one transaction.
    function payTwice(address payable to) external payable {
        send(to, msg.value / 2);
        send(to, msg.value / 2);
    }

    /// Pays after `depth` calls of itself, each with all the value.
    function payDeep(address payable to, uint256 depth) external payable {
        if (depth == 0) send(to, msg.value);
        else this.payDeep{value: msg.value}(to, depth - 1);
    }

    /// An inner frame pays and is undone; the transaction succeeds and the value stays here.
    function payAndUndo(address payable to) external payable {
        try this.payAndRevert{value: msg.value}(to) {} catch {}
    }

    function payAndRevert(address payable to) external payable {
        send(to, msg.value);
        revert("undone");
    }

    /// Borrows the code of `library_`: traces give that frame the value of its parent, and nothing moves.
    function borrow(address library_) external payable {
        (bool done, ) = library_.delegatecall("");
        require(done, "delegatecall");
    }

    /// Moves tokens of the caller, who has allowed it: the transaction is sent to this contract, the token is another.
    function forward(Token token, address to, uint256 amount) external {
        require(token.transferFrom(msg.sender, to, amount), "transferFrom");
    }

    function send(address payable to, uint256 amount) private {
        (bool done, ) = to.call{value: amount}("");
        require(done, "call");
    }
}
