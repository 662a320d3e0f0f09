// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

/// Stands where Polygon has POL's own contract, and logs what that one logs: beside the chain's own LogTransfer of each
/// movement an ERC-20 Transfer, and a LogTransfer that names the token of the root chain.
contract Mrc20 {
    address private constant ROOT_TOKEN = address(0x7001);

    event Transfer(address indexed from, address indexed to, uint256 value);
    event LogTransfer(
        address indexed token,
        address indexed from,
        address indexed to,
        uint256 amount,
        uint256 input1,
        uint256 input2,
        uint256 output1,
        uint256 output2
    );

    /// Pays from its own balance, in the name of the caller. Only bor would log the movement itself.
    function transfer(address payable to, uint256 amount) public returns (bool) {
        uint256 before = to.balance;
        (bool done, ) = to.call{value: amount}("");
        require(done, "call");
        emit Transfer(msg.sender, to, amount);
        emit LogTransfer(ROOT_TOKEN, msg.sender, to, amount, amount, before, 0, to.balance);
        return true;
    }

    /// The same, with the log that bor would write of the movement.
    function transferAsOnBor(address payable to, uint256 amount) external returns (bool) {
        uint256 ours = address(this).balance;
        uint256 theirs = to.balance;
        emit LogTransfer(address(this), address(this), to, amount, ours, theirs, ours - amount, theirs + amount);
        return transfer(to, amount);
    }
}
