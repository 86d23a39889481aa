module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x3xbf16>, %arg1: tensor<2xi8>, %arg2: tensor<3xi4>, %arg3: tensor<2xi1>) -> (tensor<2x3xbf16> {jax.result_info = "result[0]"}, tensor<2xi8> {jax.result_info = "result[1]"}, tensor<3xi4> {jax.result_info = "result[2]"}, tensor<2xi1> {jax.result_info = "result[3]"}) {
    %c = stablehlo.constant dense<1> : tensor<i8>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i8>) -> tensor<2xi8>
    %1 = stablehlo.add %arg1, %0 : tensor<2xi8>
    %2 = stablehlo.not %arg3 : tensor<2xi1>
    return %arg0, %1, %arg2, %2 : tensor<2x3xbf16>, tensor<2xi8>, tensor<3xi4>, tensor<2xi1>
  }
}
