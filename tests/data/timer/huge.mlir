module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4xf32>) -> (tensor<1024xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.broadcast_in_dim %arg0, dims = [0] : (tensor<4xf32>) -> tensor<4x1x1x1xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1, 2, 3] : (tensor<4x1x1x1xf32>) -> tensor<4x2048x1024x1024xf32>
    %cst = stablehlo.constant dense<1.500000e+00> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4x2048x1024x1024xf32>
    %3 = stablehlo.multiply %1, %2 : tensor<4x2048x1024x1024xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_0) applies stablehlo.add across dimensions = [0] : (tensor<4x2048x1024x1024xf32>, tensor<f32>) -> tensor<2048x1024x1024xf32>
    %5 = stablehlo.slice %4 [0:1, 0:1, 0:1024] : (tensor<2048x1024x1024xf32>) -> tensor<1x1x1024xf32>
    %6 = stablehlo.reshape %5 : (tensor<1x1x1024xf32>) -> tensor<1024xf32>
    return %6 : tensor<1024xf32>
  }
}
