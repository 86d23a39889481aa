module @jit_rounds attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["x"=2]> {stablehlo.mesh = {axes = [{name = "x", size = 2 : i64}]}}
  func.func public @main(%arg0: tensor<2xi32>, %arg1: tensor<8xf32>) -> (tensor<8xf32> {jax.result_info = "result"}) {
    %0 = sdy.manual_computation(%arg0, %arg1) in_shardings=[<@mesh, [{"x"}]>, <@mesh, [{"x"}]>] out_shardings=[<@mesh, [{"x"}]>] manual_axes={"x"} (%arg2: tensor<1xi32>, %arg3: tensor<4xf32>) {
      %1 = stablehlo.reshape %arg2 : (tensor<1xi32>) -> tensor<i32>
      %c = stablehlo.constant dense<0> : tensor<i32>
      %2:3 = stablehlo.while(%iterArg = %c, %iterArg_0 = %1, %iterArg_1 = %arg3) : tensor<i32>, tensor<i32>, tensor<4xf32>
      cond {
        %3 = stablehlo.compare LT, %iterArg, %iterArg_0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %3 : tensor<i1>
      } do {
        %c_2 = stablehlo.constant dense<1> : tensor<i32>
        %3 = stablehlo.add %iterArg, %c_2 : tensor<i32>
        %cst = stablehlo.constant dense<5.000000e-01> : tensor<f32>
        %4 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4xf32>
        %5 = stablehlo.multiply %iterArg_1, %4 : tensor<4xf32>
        %cst_3 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
        %6 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<4xf32>
        %7 = stablehlo.add %5, %6 : tensor<4xf32>
        stablehlo.return %3, %iterArg_0, %7 : tensor<i32>, tensor<i32>, tensor<4xf32>
      }
      sdy.return %2#2 : tensor<4xf32>
    } : (tensor<2xi32>, tensor<8xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}
