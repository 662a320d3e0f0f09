// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

/// A token that says what it likes: the logs that a detector must not take for a payment.
contract OddToken {
    mapping(address => uint256) public balanceOf;

    event Transfer(address indexed from, address indexed to, uint256 value);
    /// As USDT announces what its owner makes, and WETH what is paid in.
    event Issue(uint256 amount);
    event Deposit(address indexed to, uint256 amount);

    /// Returns false and moves nothing; no revert, no log.
    function transfer(address, uint256) external pure returns (bool) {
        return false;
    }

    /// Announces any transfer, and moves nothing.
    function announce(address from, address to, uint256 amount) external {
        emit Transfer(from, to, amount);
    }

    /// The Transfer of ERC-721: the same first topic, the id as a fourth one, no data.
    function announceNft(address from, address to, uint256 id) external {
        bytes32 topic = keccak256("Transfer(address,address,uint256)");
        assembly {
            log4(0, 0, topic, from, to, id)
        }
    }

    /// Three topics, but only 31 bytes of data.
    function announceShort(address from, address to) external {
        bytes32 topic = keccak256("Transfer(address,address,uint256)");
        assembly {
            log3(0, 31, topic, from, to)
        }
    }

    /// Makes money, and no Transfer tells of it.
    function issue(address to, uint256 amount) external {
        balanceOf[to] += amount;
        emit Issue(amount);
    }

    /// As `issue`, with another's log, which names who is paid.
    function depositFor(address to, uint256 amount) external {
        balanceOf[to] += amount;
        emit Deposit(to, amount);
    }

    /// Keeps a hundredth of what it announces.
    function transferWithFee(address to, uint256 amount) external {
        balanceOf[to] += amount - amount / 100;
        emit Transfer(msg.sender, to, amount);
    }
}
