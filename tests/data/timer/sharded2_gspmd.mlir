module @jit__lambda attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<64x128xf32> {mhlo.sharding = "{devices=[1,2]<=[2]}", tf.aliasing_output = 1 : i32}, %arg1: tensor<128x32xf32> {mhlo.sharding = "{devices=[2,1]<=[2]}"}, %arg2: tensor<32xf32> {mhlo.sharding = "{replicated}"}) -> (tensor<64x32xf32> {jax.result_info = "result[0]", mhlo.sharding = "{devices=[2,1]<=[2]}"}, tensor<64x128xf32> {jax.result_info = "result[1]", mhlo.sharding = "{devices=[1,2]<=[2]}"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x128xf32>, tensor<128x32xf32>) -> tensor<64x32xf32>
    %1 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<32xf32>) -> tensor<1x32xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<1x32xf32>) -> tensor<64x32xf32>
    %3 = stablehlo.add %0, %2 : tensor<64x32xf32>
    %cst = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %4 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<64x128xf32>
    %5 = stablehlo.multiply %arg0, %4 : tensor<64x128xf32>
    return %3, %5 : tensor<64x32xf32>, tensor<64x128xf32>
  }
}
