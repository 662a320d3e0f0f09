// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

/// Moves value inside of one transaction in every way that a trace can show, and in every way that only looks like one.
contract Inside {
    receive() external payable {}

    /// Moves to `to`: 5 twice, 7 and 9 below a call that only borrows this code, 6 at the bottom of 40 calls, 11 and
    /// 12 by destroying what was made with them; and 13 and 14 to two creations. The rest moves nothing for `to`.
    function all(address payable to) external payable {
        pay(to, 5);
        pay(to, 5);
        // The frame that pays succeeds, and the one around it fails.
        try this.payAndFail(to, 3) {} catch {}
        (bool done,) = address(this).delegatecall(abi.encodeCall(this.payTwice, (to, 7, 9)));
        require(done);
        // Nothing moves: the value of a callcode is for itself.
        assembly { pop(callcode(50000, to, 4, 0, 0, 0, 0)) }
        pay(to, 0);
        pay(payable(this), 2);
        this.dive(to, 6, 40);
        destroy(to, 11, 0);
        destroy(to, 12, 1);
        // Destroyed for itself, in the transaction that made it: burnt.
        create(hex"30ff", 8);
        create(hex"", 13);
        create2(hex"", 14);
        (done,) = to.staticcall("");
    }

    /// All of the above for nothing.
    function allAndFail(address payable to) external payable {
        this.all{value: msg.value}(to);
        revert("on purpose");
    }

    function payAndFail(address payable to, uint256 amount) external {
        pay(to, amount);
        revert("on purpose");
    }

    function payTwice(address payable to, uint256 one, uint256 other) external payable {
        pay(to, one);
        pay(to, other);
    }

    function dive(address payable to, uint256 amount, uint256 depth) external {
        if (depth == 0) pay(to, amount);
        else this.dive(to, amount, depth - 1);
    }

    function pay(address payable to, uint256 amount) private {
        (bool done,) = to.call{value: amount}("");
        require(done);
    }

    /// Makes a contract whose creation ends in its destruction in favour of `to`.
    function destroy(address to, uint256 amount, uint256 salt) private {
        bytes memory code = abi.encodePacked(hex"73", to, hex"ff");
        if (salt == 0) create(code, amount);
        else create2(code, amount);
    }

    function create(bytes memory code, uint256 amount) private {
        assembly { pop(create(amount, add(code, 32), mload(code))) }
    }

    function create2(bytes memory code, uint256 amount) private {
        assembly { pop(create2(amount, add(code, 32), mload(code), 0)) }
    }
}
