// Bytes as Solana writes them, and back.
const ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

export function base58(bytes) {
  let number = BigInt(`0x${Buffer.from(bytes).toString("hex") || "0"}`);
  let text = "";
  for (; number > 0n; number /= 58n) text = ALPHABET[Number(number % 58n)] + text;
  const zeros = bytes.findIndex((byte) => byte !== 0);
  return ALPHABET[0].repeat(zeros < 0 ? bytes.length : zeros) + text;
}

// The 32 bytes of a key or hash.
export function key(text) {
  let number = 0n;
  for (const digit of text) {
    const value = ALPHABET.indexOf(digit);
    if (value < 0) throw new Error(`${text} is not base58`);
    number = number * 58n + BigInt(value);
  }
  if (number >> 256n) throw new Error(`${text} is longer than 32 bytes`);
  return Buffer.from(number.toString(16).padStart(64, "0"), "hex");
}
