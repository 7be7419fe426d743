/** Element types of ONNX. */

/** Element types as ONNX numbers them. */
export const ONNX_TYPE = { f32: 1, u8: 2, i32: 6, i64: 7, bool: 9, f16: 10, bf16: 16 } as const;

/** Element types of tensors handed to ONNX Runtime. */
export type OnnxType = keyof typeof ONNX_TYPE;
