// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.27;

/// Landfall's own delegate (EIP-7702): it pays what the wallet's key signed, once, whoever carries that.
///
/// Nobody has audited it. It is for private chains and tests, and no public network lists it.
/// It has no owner, no constructor and no immutables: its code is the same everywhere, and it trusts no other contract. All its
/// state is in the wallet, in a place of its own (EIP-7201), so it stays when the wallet's code is taken away.
///
/// A key is used up when its payment is settled, also where the payment failed, and `Settled` says which of the two.
/// What a stranger carries must not make a payment fail that would succeed. So a failure counts only:
/// - with so much gas that too little of it was not the cause;
/// - where an account without code carries the payment itself, so that no code of his ran before it in the transaction.
/// Any other failure reverts, and uses nothing up.
contract OwnDelegate {
    struct Payment {
        /// The zero address for the native currency.
        address token;
        address destination;
        uint256 amount;
        /// A key of 24 bytes, and 8 zero bytes.
        bytes32 nonce;
        /// A block of this time, or of a later one, does not pay it.
        uint256 deadline;
        /// Who may carry it; the zero address for anybody.
        address executor;
    }

    event Settled(bytes32 indexed nonce, bool ok, address token, address destination, uint256 amount);

    error TooLate();
    error NotExecutor();
    error NoNonce();
    error NonceUsed();
    error NotSigned();
    error NotPaid();

    bytes32 private constant DOMAIN =
        keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
    bytes32 private constant NAME = keccak256("Landfall delegate");
    bytes32 private constant VERSION = keccak256("1");
    bytes32 private constant PAYMENT = keccak256(
        "Payment(address token,address destination,uint256 amount,bytes32 nonce,uint256 deadline,address executor)"
    );
    /// keccak256(abi.encode(uint256(keccak256("landfall.delegate")) - 1)) & ~bytes32(uint256(0xff))
    bytes32 private constant USED = 0x5667e0d389c222d6da0c9b91687fae778b1778b9aae280c59d26dd15f27a4100;
    /// Half the order of the curve: a signature with a greater s has a twin.
    uint256 private constant S_MAX = 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0;
    /// With so much gas a failure counts.
    uint256 private constant FAILURE_GAS = 2_000_000;

    receive() external payable {}

    function pay(Payment calldata payment, uint8 v, bytes32 r, bytes32 s) external {
        require(block.timestamp < payment.deadline, TooLate());
        require(payment.executor == address(0) || payment.executor == msg.sender, NotExecutor());
        require(uint64(uint256(payment.nonce)) == 0, NoNonce());
        require(_signed(_digest(payment), v, r, s), NotSigned());
        mapping(bytes32 => bool) storage used = _used();
        require(!used[payment.nonce], NonceUsed());
        used[payment.nonce] = true;
        uint256 gas = gasleft();
        bool ok = payment.token == address(0)
            ? _call(payment.destination, payment.amount, "")
            : _call(payment.token, 0, abi.encodeWithSignature("transfer(address,uint256)", payment.destination, payment.amount));
        bool counts = gas >= FAILURE_GAS && msg.sender == tx.origin && msg.sender.code.length == 0;
        require(ok || counts, NotPaid());
        emit Settled(payment.nonce, ok, payment.token, payment.destination, payment.amount);
    }

    function isUsed(bytes32 nonce) external view returns (bool) {
        return _used()[nonce];
    }

    /// ERC-1271: the wallet's key signs for the wallet, as it does where the wallet has no code.
    function isValidSignature(bytes32 digest, bytes calldata signature) external view returns (bytes4) {
        bool signed = signature.length == 65
            && _signed(digest, uint8(signature[64]), bytes32(signature[:32]), bytes32(signature[32:64]));
        return signed ? this.isValidSignature.selector : bytes4(0xffffffff);
    }

    function _signed(bytes32 digest, uint8 v, bytes32 r, bytes32 s) private view returns (bool) {
        return uint256(s) <= S_MAX && ecrecover(digest, v, r, s) == address(this);
    }

    /// EIP-712. The wallet is the verifying contract.
    function _digest(Payment calldata payment) private view returns (bytes32) {
        bytes32 domain = keccak256(abi.encode(DOMAIN, NAME, VERSION, block.chainid, address(this)));
        return keccak256(abi.encodePacked(hex"1901", domain, keccak256(abi.encode(PAYMENT, payment))));
    }

    function _used() private pure returns (mapping(bytes32 => bool) storage used) {
        assembly {
            used.slot := USED
        }
    }

    /// What the other side returns is not read: it may be long, and the token's log says what it did.
    function _call(address target, uint256 value, bytes memory data) private returns (bool ok) {
        assembly {
            ok := call(gas(), target, value, add(data, 32), mload(data), 0, 0)
        }
    }
}
