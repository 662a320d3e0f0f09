// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

/// Emits logs that concern nobody: mined first, it shifts the log indexes of every later transaction of its block.
contract Noise {
    event Shout(uint256 indexed i);

    function shout(uint256 n) external {
        for (uint256 i = 0; i < n; i++) emit Shout(i);
    }
}
