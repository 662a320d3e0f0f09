// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

/// The test chains' USDC: a real ERC-20 whose runtime code stands at the network's own USDC address.
///
/// It has no constructor and no immutables, so that `anvil_setCode` alone makes it complete.
/// It promises the events of ERC-20 and refuses what a balance or an allowance does not cover.
/// Anyone may mint: it must never be deployed where money is real.
contract Token {
    string public constant name = "USD Coin";
    string public constant symbol = "USDC";
    uint8 public constant decimals = 6;

    uint256 public totalSupply;
    mapping(address => uint256) public balanceOf;
    mapping(address => mapping(address => uint256)) public allowance;

    event Transfer(address indexed from, address indexed to, uint256 value);
    event Approval(address indexed owner, address indexed spender, uint256 value);

    function transfer(address to, uint256 amount) external returns (bool) {
        move(msg.sender, to, amount);
        return true;
    }

    function approve(address spender, uint256 amount) external returns (bool) {
        allowance[msg.sender][spender] = amount;
        emit Approval(msg.sender, spender, amount);
        return true;
    }

    function transferFrom(address from, address to, uint256 amount) external returns (bool) {
        uint256 allowed = allowance[from][msg.sender];
        require(allowed >= amount, "allowance");
        // The greatest allowance means "for ever", as in most tokens.
        if (allowed != type(uint256).max) allowance[from][msg.sender] = allowed - amount;
        move(from, to, amount);
        return true;
    }

    /// Makes money out of nothing, announced as ERC-20 wants it: a Transfer from the zero address.
    function mint(address to, uint256 amount) external {
        totalSupply += amount;
        balanceOf[to] += amount;
        emit Transfer(address(0), to, amount);
    }

    /// Several transfers in one transaction, in order; equal ones are allowed and each counts.
    function pay(address[] calldata to, uint256[] calldata amounts) external {
        require(to.length == amounts.length, "lengths");
        for (uint256 i = 0; i < to.length; i++) move(msg.sender, to[i], amounts[i]);
    }

    function move(address from, address to, uint256 amount) private {
        require(balanceOf[from] >= amount, "balance");
        balanceOf[from] -= amount;
        balanceOf[to] += amount;
        emit Transfer(from, to, amount);
    }
}
