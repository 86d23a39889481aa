module @jit_f {
  func.func public @main(%arg0: tensor<1000x64xf32> loc("a"), %arg1: tensor<256xi32>, %arg2: tensor<i32>, %arg3: tensor<4xi32>, %arg4: tensor<i32>) -> (tensor<256x64xf32> {jax.result_info = "result"}) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<256xi32>
    %1 = stablehlo.compare LT, %arg1, %0, SIGNED : (tensor<256xi32>, tensor<256xi32>) -> tensor<256xi1>
    %c_0 = stablehlo.constant dense<1000> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<256xi32>
    %3 = stablehlo.add %arg1, %2 : tensor<256xi32>
    %4 = stablehlo.select %1, %3, %arg1 : tensor<256xi1>, tensor<256xi32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<256xi32>) -> tensor<256x1xi32>
    %6 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 64>}> : (tensor<1000x64xf32>, tensor<256x1xi32>) -> tensor<256x64xf32>
    %7 = stablehlo.dynamic_slice %arg0, %arg2, %c, sizes = [8, 64] : (tensor<1000x64xf32>, tensor<i32>, tensor<i32>) -> tensor<8x64xf32>
    %8 = call @_take(%7, %arg3) : (tensor<8x64xf32>, tensor<4xi32>) -> tensor<4x64xf32>
    %9 = stablehlo.convert %arg4 : (tensor<i32>) -> tensor<f32>
    return %6 : tensor<256x64xf32>
  }
  func.func private @_take(%arg0: tensor<8x64xf32>, %arg1: tensor<4xi32>) -> tensor<4x64xf32> {
    %0 = stablehlo.reshape %arg1 : (tensor<4xi32>) -> tensor<4x1xi32>
    %1 = "stablehlo.gather"(%arg0, %0) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 2, 64>}> : (tensor<8x64xf32>, tensor<4x1xi32>) -> tensor<4x64xf32>
    return %1 : tensor<4x64xf32>
  }
}
